package promql

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Query is a parsed query.
type Query struct {
	Metric   string
	Sources  []string // values of source_id
	matchers []matcher
	root     *node
}

// node is an aggregation, a function, or the selector.
type node struct {
	aggregate string // sum, avg, min, max or count; empty: not an aggregation
	labels    []string
	without   bool // group by all labels except labels
	inner     *node

	over  string        // such as avg_over_time; empty: the selector itself
	width time.Duration // of the range; 0: there is none
}

// matcher is a condition for a label.
type matcher struct {
	label, op, value string
	pattern          *regexp.Regexp // for =~ and !~
}

func (m matcher) matches(value string) bool {
	switch m.op {
	case "=":
		return value == m.value
	case "!=":
		return value != m.value
	case "=~":
		return m.pattern.MatchString(value)
	}
	return !m.pattern.MatchString(value)
}

const (
	maxQuery = 10_000
	maxDepth = 4
	overTime = "_over_time"
	// supported ends the messages about expressions that are not supported.
	supported = "dew supports selectors, sum, avg, min, max, count with by or without, and these names with _over_time, and last_over_time"
)

var (
	aggregations = []string{"sum", "avg", "min", "max", "count"}
	functions    = []string{"sum_over_time", "avg_over_time", "min_over_time", "max_over_time", "count_over_time", "last_over_time"}
	word         = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	rangeText    = regexp.MustCompile(`^[0-9a-z]+`)
)

// sourceLabel is the label that every query must have.
const sourceLabel = "source_id"

// Parse parses a query. The errors are for users.
func Parse(text string) (*Query, error) {
	if len(text) > maxQuery {
		return nil, fmt.Errorf("parse error: the query is longer than %d bytes", maxQuery)
	}
	p := &parser{text: text}
	q := &Query{}
	root, err := p.expr(q, 0)
	if err != nil {
		return nil, err
	}
	if p.skip(); p.at < len(p.text) {
		return nil, p.unexpected("the end of the query. Operators are not supported: " + supported)
	}
	q.root = root
	for _, m := range q.matchers {
		if m.label != sourceLabel {
			continue
		}
		switch m.op {
		case "=":
			q.Sources = append(q.Sources, m.value)
		case "=~":
			q.Sources = append(q.Sources, strings.Split(m.value, "|")...)
		}
	}
	q.Sources = slices.DeleteFunc(q.Sources, func(s string) bool { return s == "" })
	if len(q.Sources) == 0 {
		return nil, fmt.Errorf("query does not request any source_ids")
	}
	return q, nil
}

type parser struct {
	text string
	at   int
}

func (p *parser) skip() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *parser) unexpected(want string) error {
	rest := p.text[p.at:]
	if rest == "" {
		rest = "end of input"
	} else {
		rest = strconv.QuoteToASCII(rest[:min(len(rest), 20)])
	}
	return fmt.Errorf("parse error at char %d: unexpected %s, expected %s", p.at+1, rest, want)
}

// accept skips a symbol if it is next.
func (p *parser) accept(symbol string) bool {
	p.skip()
	if !strings.HasPrefix(p.text[p.at:], symbol) {
		return false
	}
	p.at += len(symbol)
	return true
}

func (p *parser) expect(symbol string) error {
	if !p.accept(symbol) {
		return p.unexpected(strconv.Quote(symbol))
	}
	return nil
}

// word returns the next name, or nothing.
func (p *parser) word() string {
	p.skip()
	w := word.FindString(p.text[p.at:])
	p.at += len(w)
	return w
}

func (p *parser) expr(q *Query, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("parse error at char %d: the query has too many parentheses", p.at+1)
	}
	if p.accept("(") {
		n, err := p.expr(q, depth+1)
		if err != nil {
			return nil, err
		}
		return n, p.expect(")")
	}
	start := p.at
	name := p.word()
	p.skip()
	next := p.at < len(p.text) && p.text[p.at] == '('
	switch {
	case slices.Contains(aggregations, name) && (next || p.grouped()):
		return p.aggregation(q, name, depth)
	case slices.Contains(functions, name) && next:
		return p.function(q, name)
	case next && name != "":
		return nil, fmt.Errorf("parse error at char %d: %s is not supported: %s", start+1, name, supported)
	case name == "" && (p.at >= len(p.text) || p.text[p.at] != '{'):
		return nil, p.unexpected("a metric, such as cpu{source_id=\"GUID\"}")
	}
	return p.selector(q, name)
}

// grouped reports whether by or without is next.
func (p *parser) grouped() bool {
	at := p.at
	w := p.word()
	p.at = at
	return w == "by" || w == "without"
}

func (p *parser) aggregation(q *Query, name string, depth int) (*node, error) {
	n := &node{aggregate: name}
	before, err := p.grouping(n)
	if err != nil {
		return nil, err
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	if n.inner, err = p.expr(q, depth+1); err != nil {
		return nil, err
	}
	if n.inner.aggregate == "" && n.inner.over == "" && n.inner.width > 0 {
		return nil, fmt.Errorf("parse error: expected type instant vector in aggregation expression, got range vector")
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if !before {
		_, err = p.grouping(n)
	}
	return n, err
}

// grouping reads by (labels) or without (labels), if it is next.
func (p *parser) grouping(n *node) (bool, error) {
	if !p.grouped() {
		return false, nil
	}
	n.without = p.word() == "without"
	if err := p.expect("("); err != nil {
		return true, err
	}
	for !p.accept(")") {
		label := p.word()
		if label == "" {
			return true, p.unexpected("a label")
		}
		n.labels = append(n.labels, label)
		if !p.accept(",") {
			return true, p.expect(")")
		}
	}
	return true, nil
}

func (p *parser) function(q *Query, name string) (*node, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	n, err := p.selector(q, p.word())
	if err != nil {
		return nil, err
	}
	if n.width == 0 {
		return nil, fmt.Errorf("parse error: expected type range vector in call to function %q, got instant vector. Add a range such as [5m]", name)
	}
	n.over = name
	return n, p.expect(")")
}

// selector reads the rest of a selector after its name.
func (p *parser) selector(q *Query, name string) (*node, error) {
	q.Metric = name
	if p.accept("{") {
		if err := p.matchers(q); err != nil {
			return nil, err
		}
	}
	if q.Metric == "" {
		return nil, fmt.Errorf("parse error: the selector has no metric, such as cpu{source_id=\"GUID\"}")
	}
	n := &node{}
	if !p.accept("[") {
		return n, nil
	}
	p.skip()
	text := rangeText.FindString(p.text[p.at:])
	d, err := model.ParseDuration(text)
	if err != nil || d == 0 {
		return nil, p.unexpected("a range such as 5m")
	}
	p.at += len(text)
	n.width = time.Duration(d)
	return n, p.expect("]")
}

func (p *parser) matchers(q *Query) error {
	for !p.accept("}") {
		m := matcher{label: p.word()}
		if m.label == "" {
			return p.unexpected("a label")
		}
		for _, op := range []string{"=~", "!~", "!=", "="} {
			if m.op == "" && p.accept(op) {
				m.op = op
			}
		}
		if m.op == "" {
			return p.unexpected("one of =, !=, =~ and !~")
		}
		if err := p.value(&m); err != nil {
			return err
		}
		if m.label == nameLabel && m.op == "=" && q.Metric == "" {
			q.Metric = m.value
		}
		q.matchers = append(q.matchers, m)
		if !p.accept(",") {
			return p.expect("}")
		}
	}
	return nil
}

// value reads the quoted value of a matcher.
func (p *parser) value(m *matcher) error {
	p.skip()
	quoted, err := strconv.QuotedPrefix(p.text[p.at:])
	if err == nil {
		m.value, err = strconv.Unquote(quoted)
	}
	if err != nil {
		return p.unexpected("a quoted value")
	}
	p.at += len(quoted)
	if m.op != "=~" && m.op != "!~" {
		return nil
	}
	if m.pattern, err = regexp.Compile("^(?s:" + m.value + ")$"); err != nil {
		return fmt.Errorf("parse error at char %d: %w", p.at+1, err)
	}
	return nil
}
