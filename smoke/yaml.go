package smoke

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a smoke.yml, which no sane one comes near.
const (
	maxFile  = 256 << 10
	maxDepth = 50
)

// SpecError says what is wrong with a smoke.yml, where, and what is allowed.
type SpecError struct {
	File    string
	Line    int    // 0: nobody knows
	Key     string // "checks[0].http.port"
	Message string
}

func (e *SpecError) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ", line " + strconv.Itoa(e.Line)
	}
	if e.Key != "" {
		where += ": " + e.Key
	}
	return where + ": " + e.Message
}

// node is YAML with its lines.
type node struct {
	line   int
	value  any // nil, bool, int64, uint64, float64 or string
	list   []*node
	fields []field
	kind   kind
}

type kind int

const (
	scalar kind = iota
	list
	mapping
)

type field struct {
	name  string
	line  int
	value *node
}

func (n *node) null() bool { return n.kind == scalar && n.value == nil }

// noun says what a node is, for messages.
func (n *node) noun() string {
	switch n.kind {
	case list:
		return "a list"
	case mapping:
		return "a map"
	}
	switch v := n.value.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(shorten(v))
	default:
		return fmt.Sprint(v)
	}
}

// plain is the node as a value of Go, as JSON knows them.
func (n *node) plain() any {
	switch n.kind {
	case list:
		out := make([]any, len(n.list))
		for i, one := range n.list {
			out[i] = one.plain()
		}
		return out
	case mapping:
		out := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			out[f.name] = f.value.plain()
		}
		return out
	}
	return n.value
}

// parseYAML reads one document without anchors.
func parseYAML(b []byte) (n *node, err error) {
	if len(b) > maxFile {
		return nil, &SpecError{Message: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(b), maxFile)}
	}
	// What a library makes of bytes that nobody has tried is no reason to fall over.
	defer func() {
		if v := recover(); v != nil {
			n, err = nil, &SpecError{Message: fmt.Sprintf("it is not YAML that can be read: %v", v)}
		}
	}()
	tokens := lexer.Tokenize(string(b))
	if line := tooDeep(tokens); line > 0 {
		return nil, &SpecError{Line: line, Message: fmt.Sprintf("it is nested too deep: at most %d levels are allowed", maxDepth)}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			return nil, &SpecError{Line: lineOf(d.Body), Message: "a second document begins here: only one is allowed"}
		}
		body = d.Body
	}
	if body == nil {
		return &node{}, nil
	}
	return read(body, 0)
}

func syntaxError(err error) error {
	var se *yaml.SyntaxError
	if !errors.As(err, &se) {
		return &SpecError{Message: "it is not YAML: " + err.Error()}
	}
	line := 0
	if se.Token != nil && se.Token.Position != nil {
		line = se.Token.Position.Line
	}
	return &SpecError{Line: line, Message: "it is not YAML: " + se.Message}
}

// tooDeep returns the line in which nesting goes too deep, or 0. The parser's time
// grows with the square of what is nested within one line.
func tooDeep(tokens token.Tokens) int {
	open, line, marks := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, marks = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
			marks = 0
		case token.SequenceEndType, token.MappingEndType:
			open = max(0, open-1)
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			marks++
		case token.MappingValueType:
			if open == 0 { // inside brackets they are neighbours
				marks++
			}
		case token.CollectEntryType:
			marks = 0
		}
		if open > maxDepth || marks > maxDepth {
			return line
		}
	}
	return 0
}

func lineOf(a ast.Node) int {
	if a == nil || a.GetToken() == nil || a.GetToken().Position == nil {
		return 0
	}
	return a.GetToken().Position.Line
}

// read makes nodes of a syntax tree.
func read(a ast.Node, depth int) (*node, error) {
	line := lineOf(a)
	if depth > maxDepth {
		return nil, &SpecError{Line: line, Message: fmt.Sprintf("it is nested too deep: at most %d levels are allowed", maxDepth)}
	}
	switch a := a.(type) {
	case *ast.MappingNode:
		return readMap(a.Values, line, depth)
	case *ast.MappingValueNode:
		return readMap([]*ast.MappingValueNode{a}, line, depth)
	case *ast.SequenceNode:
		n := &node{kind: list, line: line}
		for _, v := range a.Values {
			item, err := read(v, depth+1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, item)
		}
		return n, nil
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		return nil, &SpecError{Line: line, Message: "anchors, aliases and tags are not understood here: write the value itself"}
	}
	return readScalar(a)
}

func readMap(values []*ast.MappingValueNode, line, depth int) (*node, error) {
	n := &node{kind: mapping, line: line}
	for _, v := range values {
		name, ok := v.Key.(ast.ScalarNode)
		if !ok {
			return nil, &SpecError{Line: lineOf(v.Key), Message: "a key must be a plain text"}
		}
		value, err := read(v.Value, depth+1)
		if err != nil {
			return nil, err
		}
		n.fields = append(n.fields, field{name: fmt.Sprint(name.GetValue()), line: lineOf(v.Key), value: value})
	}
	if len(n.fields) > 0 {
		n.line = n.fields[0].line
	}
	return n, nil
}

func readScalar(a ast.Node) (*node, error) {
	n := &node{line: lineOf(a)}
	switch a := a.(type) {
	case nil, *ast.NullNode:
	case *ast.LiteralNode:
		n.value = a.Value.Value
	case *ast.StringNode:
		n.value = a.Value
	case *ast.BoolNode:
		n.value = a.Value
	case *ast.FloatNode:
		n.value = a.Value
	case *ast.IntegerNode:
		n.value = a.Value
	default:
		return nil, &SpecError{Line: n.line, Message: fmt.Sprintf("%s is not understood here: write a text, a number, a list or a map", strings.TrimSpace(a.String()))}
	}
	return n, nil
}
