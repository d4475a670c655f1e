package render

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	tree "text/template/parse"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
)

// Limits for the rendering of one part of a template.
const (
	maxSteps  = 1000      // loop iterations and template calls
	maxWork   = 1_000_000 // actions that they can run in total
	minAction = 8         // minimum bytes of template source per action
	MaxOutput = 4 << 20   // bytes of the result, and of intermediate results of functions
	maxWidth  = 3         // digits of a width in a format
)

// errExpensive is the error for a template that uses too many resources.
var errExpensive = errors.New("the template is too expensive to render")

// budget is the remaining resources for one execution of a template.
type budget struct {
	steps, work, produced, written int
	out                            strings.Builder
}

// Write stores the output of a template, up to the limit.
func (b *budget) Write(p []byte) (int, error) {
	if b.written += len(p); b.written > MaxOutput {
		return 0, fmt.Errorf("%w: the output has more than %d bytes", errExpensive, MaxOutput)
	}
	return b.out.Write(p)
}

// step counts one iteration with at most this number of actions. It is inserted at the
// start of every loop and template.
func (b *budget) step(actions int) (string, error) {
	if b.steps++; b.steps > maxSteps {
		return "", fmt.Errorf("%w: it has more than %d loop iterations and template calls", errExpensive, maxSteps)
	}
	if b.work += actions; b.work > maxWork {
		return "", fmt.Errorf("%w: it runs more than %d actions", errExpensive, maxWork)
	}
	return "", nil
}

// spend counts bytes before a function produces them.
func (b *budget) spend(n int) error {
	if b.produced += n; b.produced > MaxOutput {
		return fmt.Errorf("%w: its functions produce more than %d bytes", errExpensive, MaxOutput)
	}
	return nil
}

// limitOutput makes a function of text/template count its output before it runs.
func (b *budget) limitOutput(fn func(args ...any) string, factor int) func(args ...any) (string, error) {
	return func(args ...any) (string, error) {
		n := len(args)
		for _, a := range args {
			n += factor * sizeOf(a)
		}
		if err := b.spend(n); err != nil {
			return "", err
		}
		return fn(args...), nil
	}
}

// sizeOf returns the maximum printed size of a value in bytes. Values other than text
// are small, except the placeholders as a whole and the parts of a page.
func sizeOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case Placeholders:
		return v.size()
	case delivery.HTML:
		return htmlSize(v)
	}
	return 64
}

// tooWide matches a width in a format that is too long or that comes from an argument.
var tooWide = regexp.MustCompile(fmt.Sprintf(`%%[^a-zA-Z%%]*([0-9]{%d,}|\*)`, maxWidth+1))

// printf is like fmt.Sprintf, with limited widths.
func (b *budget) printf(format string, args ...any) (string, error) {
	if tooWide.MatchString(format) {
		return "", fmt.Errorf("%w: a width in %q has more than %d digits", errExpensive, inbound.Shorten(format), maxWidth)
	}
	largest := 1000 // maximum bytes of a padded value
	for _, a := range args {
		largest = max(largest, 8*sizeOf(a))
	}
	if err := b.spend(len(format) + largest*strings.Count(format, "%")); err != nil {
		return "", err
	}
	return fmt.Sprintf(format, args...), nil
}

const stepName = "dew_step"

func (b *budget) funcs() template.FuncMap {
	return template.FuncMap{
		stepName:   b.step,
		"printf":   b.printf,
		"print":    b.limitOutput(fmt.Sprint, 1),
		"println":  b.limitOutput(fmt.Sprintln, 1),
		"html":     b.limitOutput(template.HTMLEscaper, 6),
		"js":       b.limitOutput(template.JSEscaper, 6),
		"urlquery": b.limitOutput(template.URLQueryEscaper, 3),
	}
}

// parseTemplate parses one part of a template, whose executions use the budget b.
func parseTemplate(name, source string, b *budget) (*template.Template, error) {
	t, err := template.New(name).Funcs(b.funcs()).Parse(source)
	if err != nil {
		return nil, err
	}
	counted, err := template.New("step").Funcs(b.funcs()).Parse(fmt.Sprintf("{{%s %d}}", stepName, len(source)/minAction))
	if err != nil {
		return nil, err
	}
	step := counted.Root.Nodes[0]
	for _, one := range t.Templates() {
		if one.Tree != nil && one.Root != nil {
			countIterations(one.Root, step)
			one.Root.Nodes = append([]tree.Node{step}, one.Root.Nodes...)
		}
	}
	return t, nil
}

// Check returns an error with the place and the reason if one part of a template is
// invalid.
func Check(name, source string) error {
	if _, err := parseTemplate(name, source, &budget{}); err != nil {
		return errors.New(describeError(err))
	}
	return nil
}

// Try executes one part of a template with sample values, and returns an error with the
// place and the reason if that fails. With empty values it checks only the names of the
// placeholders, because a template can rely on a value.
func Try(name, source string) error {
	for _, p := range []Placeholders{Sample(), {}} {
		b := &budget{}
		t, err := parseTemplate(name, source, b)
		if err == nil {
			err = t.Execute(b, p)
		}
		if err == nil {
			continue
		}
		if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
			return fmt.Errorf("%sthere is no placeholder {{.%s}}", linePrefix(err), m[1])
		}
		if errors.Is(err, errExpensive) {
			text := err.Error()
			return errors.New(linePrefix(err) + text[strings.Index(text, errExpensive.Error()):])
		}
		if p != (Placeholders{}) {
			return errors.New(describeError(err))
		}
	}
	return nil
}

// unknownField matches the error of text/template for an unknown placeholder.
var unknownField = regexp.MustCompile(`can't evaluate field (\S+) in type render\.Placeholders`)

// linePrefix returns the line of an error of text/template, or "".
func linePrefix(err error) string {
	if m := errorPattern.FindStringSubmatch(err.Error()); m != nil {
		return "line " + m[1] + ": "
	}
	return ""
}

// countIterations inserts a step at the start of every loop in a list.
func countIterations(list *tree.ListNode, step tree.Node) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *tree.IfNode:
			countIterations(n.List, step)
			countIterations(n.ElseList, step)
		case *tree.WithNode:
			countIterations(n.List, step)
			countIterations(n.ElseList, step)
		case *tree.RangeNode:
			countIterations(n.List, step)
			countIterations(n.ElseList, step)
			n.List.Nodes = append([]tree.Node{step}, n.List.Nodes...)
		}
	}
}

// Fill executes one part of a template. It removes one newline at the end.
func Fill(name, source string, p Placeholders) (string, error) {
	b := &budget{}
	t, err := parseTemplate(name, source, b)
	if err != nil {
		return "", fmt.Errorf("cannot parse the %s of a template: %s", name, describeError(err))
	}
	if err := t.Execute(b, p); err != nil {
		return "", fmt.Errorf("cannot render the %s of a template: %s", name, describeError(err))
	}
	return strings.TrimSuffix(b.out.String(), "\n"), nil
}

// errorPattern matches the errors of text/template.
var errorPattern = regexp.MustCompile(`(?s)^template: [^:]*:(\d+)(?::\d+)?: (.*)$`)

// describeError returns the line and the reason of a template error, for users.
func describeError(err error) string {
	const start, end = 150, 150 // the cause is at the end
	text := err.Error()
	if m := errorPattern.FindStringSubmatch(text); m != nil {
		text = "line " + m[1] + ": " + m[2]
	}
	if len(text) > start+end {
		text = strings.ToValidUTF8(text[:start], "") + "..." + strings.ToValidUTF8(text[len(text)-end:], "")
	}
	return text
}
