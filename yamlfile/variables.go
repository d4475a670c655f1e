package yamlfile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A variable is ((name)), where a dot selects a map entry. A leading ! is allowed and
// has no effect.
var (
	variable      = regexp.MustCompile(`\(\((!?[-/.\w\pL]+)\)\)`)
	wholeVariable = regexp.MustCompile(`^\(\((!?[-/.\w\pL]+)\)\)$`)
)

// IsVariable reports whether name can be the name of a variable.
func IsVariable(name string) bool { return wholeVariable.MatchString("((" + name + "))") }

// Interpolate returns n with the variables in it replaced by their values. The error is
// one or more Errors.
func Interpolate(n *Node, vars map[string]any) (*Node, error) {
	in := &interpolation{vars: vars, done: map[*Node]*Node{}}
	out := in.node(n)
	if len(in.missing) > 0 {
		in.errs = append(in.errs, &Error{
			Line:    in.missingLine,
			Message: fmt.Sprintf("these variables have no value: %s: set them with --var or --vars-file", strings.Join(in.missing, ", ")),
		})
	}
	return out, errors.Join(in.errs...)
}

type interpolation struct {
	vars        map[string]any
	done        map[*Node]*Node // shared nodes are replaced once
	errs        []error
	missing     []string
	missingLine int // of the first missing variable
}

func (in *interpolation) node(n *Node) *Node {
	if out, ok := in.done[n]; ok {
		return out
	}
	out := *n
	switch n.Kind {
	case List:
		out.Items = slices.Clone(n.Items)
		for i := range out.Items {
			out.Items[i] = in.node(out.Items[i])
		}
	case Map:
		out.Fields = slices.Clone(n.Fields)
		for i := range out.Fields {
			out.Fields[i].Name = in.splice(out.Fields[i].Name, out.Fields[i].Line)
			out.Fields[i].Value = in.node(out.Fields[i].Value)
		}
	case Scalar:
		if s, ok := n.Value.(string); ok {
			out = *in.text(n, s)
		}
	}
	in.done[n] = &out
	return &out
}

// text replaces a text that consists of one variable by its value of any type.
func (in *interpolation) text(n *Node, s string) *Node {
	m := wholeVariable.FindStringSubmatch(s)
	if m == nil {
		return &Node{Line: n.Line, Value: in.splice(s, n.Line), Anchor: n.Anchor}
	}
	v, ok := in.lookup(m[1], n.Line)
	if !ok {
		return n
	}
	out, err := FromPlain(v, n.Line)
	if err != nil {
		in.errs = append(in.errs, &Error{Key: s, Line: n.Line, Message: err.Error()})
		return n
	}
	return out
}

// splice inserts values into a text.
func (in *interpolation) splice(s string, line int) string {
	return variable.ReplaceAllStringFunc(s, func(match string) string {
		v, ok := in.lookup(match[2:len(match)-2], line)
		if !ok {
			return match
		}
		out, ok := ScalarText(v)
		if !ok {
			in.errs = append(in.errs, &Error{Key: match, Line: line, Message: "is part of a longer text, so its value must be text, a number, true or false"})
		}
		return out
	})
}

// lookup returns a variable by its whole name, or by a path into maps.
func (in *interpolation) lookup(name string, line int) (any, bool) {
	name = strings.TrimPrefix(name, "!")
	if v, ok := in.vars[name]; ok {
		return v, true
	}
	var v any = in.vars
	for part := range strings.SplitSeq(name, ".") {
		m, _ := v.(map[string]any)
		var ok bool
		if v, ok = m[part]; !ok {
			in.miss(name, line)
			return nil, false
		}
	}
	return v, true
}

func (in *interpolation) miss(name string, line int) {
	if in.missingLine == 0 {
		in.missingLine = line
	}
	if text := fmt.Sprintf("((%s)) in line %d", name, line); !slices.Contains(in.missing, text) {
		in.missing = append(in.missing, text)
	}
}
