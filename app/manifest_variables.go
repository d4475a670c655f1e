package app

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/yamlfile"
)

// ((name)), where a dot leads into a map; a leading ! is allowed and means nothing.
var (
	variable      = regexp.MustCompile(`\(\((!?[-/.\w\pL]+)\)\)`)
	wholeVariable = regexp.MustCompile(`^\(\((!?[-/.\w\pL]+)\)\)$`)
)

// ParseVariables reads a file of variables: a YAML map.
func ParseVariables(file []byte) (map[string]any, error) {
	n, err := readYAML(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read variables: %w", err)
	}
	if n.Null() {
		return map[string]any{}, nil
	}
	if n.Kind != yamlfile.Map {
		return nil, fmt.Errorf("cannot read variables: %w", &ManifestError{Line: n.Line, Message: "must be a map of names and values, not " + n.Noun()})
	}
	return n.Plain().(map[string]any), nil
}

// ParseVariable reads name=value, where the value is YAML: 2 is a number.
func ParseVariable(s string) (name string, value any, err error) {
	name, text, ok := strings.Cut(s, "=")
	if !ok || !wholeVariable.MatchString("(("+name+"))") {
		return "", nil, fmt.Errorf("%q is not a variable: write name=value", s)
	}
	n, err := readYAML([]byte(text))
	if err != nil {
		return "", nil, fmt.Errorf("cannot read variable %s: %w", name, err)
	}
	return name, n.Plain(), nil
}

// toNode is the value of a variable as a node at the line where it is used.
func toNode(v any, line int) (*yamlfile.Node, error) {
	n := &yamlfile.Node{Line: line}
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64, string:
		n.Value = v
	case int:
		n.Value = int64(v)
	case []any:
		n.Kind = yamlfile.List
		for _, i := range v {
			item, err := toNode(i, line)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
	case map[string]any:
		n.Kind = yamlfile.Map
		for _, k := range slices.Sorted(maps.Keys(v)) {
			value, err := toNode(v[k], line)
			if err != nil {
				return nil, err
			}
			n.Fields = append(n.Fields, yamlfile.Field{Name: k, Line: line, Value: value})
		}
	default:
		return nil, fmt.Errorf("has a value of type %T, which YAML does not have", v)
	}
	return n, nil
}

// interpolate returns n with the variables in it replaced by their values.
func interpolate(n *yamlfile.Node, vars map[string]any) (*yamlfile.Node, error) {
	in := &interpolation{vars: vars, done: map[*yamlfile.Node]*yamlfile.Node{}}
	out := in.node(n)
	if len(in.missing) > 0 {
		in.errs = append(in.errs, &ManifestError{
			Line:    in.missingLine,
			Message: fmt.Sprintf("these variables have no value: %s: give them with --var or --vars-file", strings.Join(in.missing, ", ")),
		})
	}
	return out, errors.Join(in.errs...)
}

type interpolation struct {
	vars        map[string]any
	done        map[*yamlfile.Node]*yamlfile.Node // shared nodes are replaced once
	errs        []error
	missing     []string
	missingLine int // of the first one
}

func (in *interpolation) node(n *yamlfile.Node) *yamlfile.Node {
	if out, ok := in.done[n]; ok {
		return out
	}
	out := *n
	switch n.Kind {
	case yamlfile.List:
		out.Items = slices.Clone(n.Items)
		for i := range out.Items {
			out.Items[i] = in.node(out.Items[i])
		}
	case yamlfile.Map:
		out.Fields = slices.Clone(n.Fields)
		for i := range out.Fields {
			out.Fields[i].Name = in.splice(out.Fields[i].Name, out.Fields[i].Line)
			out.Fields[i].Value = in.node(out.Fields[i].Value)
		}
	case yamlfile.Scalar:
		if s, ok := n.Value.(string); ok {
			out = *in.text(n, s)
		}
	}
	in.done[n] = &out
	return &out
}

// text replaces a text that is one variable by its value, whatever it is.
func (in *interpolation) text(n *yamlfile.Node, s string) *yamlfile.Node {
	m := wholeVariable.FindStringSubmatch(s)
	if m == nil {
		return &yamlfile.Node{Line: n.Line, Value: in.splice(s, n.Line), Anchor: n.Anchor}
	}
	v, ok := in.lookup(m[1], n.Line)
	if !ok {
		return n
	}
	out, err := toNode(v, n.Line)
	if err != nil {
		in.errs = append(in.errs, &ManifestError{Key: s, Line: n.Line, Message: err.Error()})
		return n
	}
	return out
}

// splice puts values into the middle of a text.
func (in *interpolation) splice(s string, line int) string {
	return variable.ReplaceAllStringFunc(s, func(match string) string {
		v, ok := in.lookup(match[2:len(match)-2], line)
		if !ok {
			return match
		}
		out, ok := scalarText(v)
		if !ok {
			in.errs = append(in.errs, &ManifestError{Key: match, Line: line, Message: "stands inside a text, so its value must be a text, a number, true or false"})
		}
		return out
	})
}

// lookup finds a variable by its whole name, or by a path into maps.
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

// scalarText writes a value as text, if it is one.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return "", false
		}
		if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
			return strconv.FormatFloat(v, 'g', -1, 64), true
		}
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}
