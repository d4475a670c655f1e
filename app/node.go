package app

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a manifest. Nodes are counted with anchors expanded: a few lines that
// name each other could otherwise stand for millions. The depth is one that no
// manifest comes near; without it, brackets alone could exhaust the stack.
const (
	maxManifest = 1 << 20
	maxNodes    = 100_000
	maxDepth    = 100
)

type kind int

const (
	scalar kind = iota
	list
	mapping
)

// node is YAML with anchors and merges resolved, and the lines kept. Nodes are
// shared between the places that name an anchor, so nobody changes one.
type node struct {
	kind   kind
	line   int
	value  any     // scalar: nil, bool, int64, uint64 (if it must be), float64 or string
	items  []*node // list
	fields []field // mapping
	size   int     // nodes in it
	anchor bool    // it has one, or something in it does
}

type field struct {
	name  string
	line  int
	value *node
}

func (n *node) null() bool { return n.kind == scalar && n.value == nil }

func (n *node) get(name string) *node {
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

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
		return fmt.Sprintf("the text %q", Shorten(v))
	case bool:
		return fmt.Sprintf("%t", v)
	}
	return fmt.Sprintf("the number %v", n.value)
}

func Shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// parseYAML reads one document.
func parseYAML(b []byte) (n *node, err error) {
	if len(b) > maxManifest {
		return nil, &ManifestError{Message: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(b), maxManifest)}
	}
	// What a library makes of bytes that nobody has tried must not take more with it
	// than this manifest.
	defer func() {
		if v := recover(); v != nil {
			n, err = nil, &ManifestError{Message: fmt.Sprintf("it is not YAML that can be read: %v", v)}
		}
	}()
	if line := invalidLine(b); line > 0 {
		return nil, &ManifestError{Line: line, Message: "it is not valid UTF-8"}
	}
	tokens := lexer.Tokenize(string(b))
	if line := tooDeep(tokens); line > 0 {
		return nil, deepError(line)
	}
	if line := noCharacter(b, tokens); line > 0 {
		return nil, &ManifestError{Line: line, Message: "it is not valid UTF-8: a \\u escape is no character"}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(err)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			return nil, &ManifestError{Line: lineOf(d.Body), Message: "a second document begins here: only one is allowed"}
		}
		body = d.Body
	}
	if body == nil {
		return &node{size: 1}, nil
	}
	y := &yamlReader{anchors: map[string]*node{}}
	return y.read(body)
}

func syntaxError(err error) error {
	var se *yaml.SyntaxError
	if !errors.As(err, &se) {
		return &ManifestError{Message: "it is not YAML: " + err.Error()}
	}
	line := 0
	if se.Token != nil && se.Token.Position != nil {
		line = se.Token.Position.Line
	}
	return &ManifestError{Line: line, Message: "it is not YAML: " + se.Message}
}

// invalidLine returns the first line that is not UTF-8, or 0. The lexer would put
// U+FFFD there, and make two names one.
func invalidLine(b []byte) int {
	if utf8.Valid(b) {
		return 0
	}
	line := 1
	for text := range bytes.Lines(b) {
		if !utf8.Valid(text) {
			break
		}
		line++
	}
	return line
}

// replacementEscape is U+FFFD as a client can write it on purpose.
var replacementEscape = regexp.MustCompile(`(?i)\\u(0000)?fffd`)

// noCharacter returns the line of a quoted text with an escape that is no character,
// half of a surrogate pair, or 0. The lexer puts U+FFFD there.
func noCharacter(b []byte, tokens token.Tokens) int {
	written := len(replacementEscape.FindAllIndex(b, -1))
	for _, t := range tokens {
		if t.Type != token.DoubleQuoteType {
			continue
		}
		// The origin has the characters as they came, and no escapes.
		written -= strings.Count(t.Value, replacement) - strings.Count(t.Origin, replacement)
		if written < 0 {
			return t.Position.Line
		}
	}
	return 0
}

const replacement = string(utf8.RuneError)

func deepError(line int) error {
	return &ManifestError{Line: line, Message: fmt.Sprintf("it is nested too deep: at most %d levels are allowed", maxDepth)}
}

// tooDeep returns the line in which nesting goes beyond maxDepth, or 0. The
// parser's time grows with the square of what is nested within one line, so it
// gets to see only what is sane.
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

// yamlReader makes nodes of a syntax tree.
type yamlReader struct {
	anchors map[string]*node
	merged  int // fields that merges copied
	depth   int
}

func (y *yamlReader) read(a ast.Node) (*node, error) {
	y.depth++
	defer func() { y.depth-- }()
	if y.depth > maxDepth {
		return nil, deepError(lineOf(a))
	}
	n, err := y.node(a)
	if err != nil {
		return nil, err
	}
	n.count()
	if n.size > maxNodes || y.merged > maxNodes {
		return nil, &ManifestError{Line: lineOf(a), Message: fmt.Sprintf("it stands for more than %d values with its anchors expanded", maxNodes)}
	}
	return n, nil
}

func (n *node) count() {
	n.size = 1
	for _, i := range n.items {
		n.size += i.size
		n.anchor = n.anchor || i.anchor
	}
	for _, f := range n.fields {
		n.size += f.value.size
		n.anchor = n.anchor || f.value.anchor
	}
}

func (y *yamlReader) node(a ast.Node) (*node, error) {
	line := lineOf(a)
	switch a := a.(type) {
	case *ast.MappingNode:
		return y.mapping(a.Values, line)
	case *ast.MappingValueNode:
		return y.mapping([]*ast.MappingValueNode{a}, line)
	case *ast.SequenceNode:
		n := &node{kind: list, line: line}
		for _, v := range a.Values {
			item, err := y.read(v)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		return n, nil
	case *ast.AnchorNode:
		n, err := y.read(a.Value)
		if err != nil {
			return nil, err
		}
		c := *n
		c.anchor = true
		y.anchors[text(a.Name)] = &c
		return &c, nil
	case *ast.AliasNode:
		n, ok := y.anchors[text(a.Value)]
		if !ok {
			return nil, &ManifestError{Line: line, Message: fmt.Sprintf("*%s names no anchor above it: write &%s before the value that it stands for", text(a.Value), text(a.Value))}
		}
		c := *n // the line of the use is kept: it is what the reader looks for
		c.line = line
		return &c, nil
	case *ast.TagNode:
		return y.tagged(a)
	case *ast.LiteralNode:
		return &node{line: line, value: a.Value.Value}, nil
	}
	return plain(a)
}

// plain reads a scalar.
func plain(a ast.Node) (*node, error) {
	n := &node{line: lineOf(a)}
	switch a := a.(type) {
	case nil, *ast.NullNode:
	case *ast.StringNode:
		n.value = a.Value
	case *ast.BoolNode:
		n.value = a.Value
	case *ast.FloatNode:
		n.value = a.Value
	case *ast.InfinityNode:
		n.value = a.Value
	case *ast.NanNode:
		n.value = math.NaN()
	case *ast.IntegerNode:
		n.value = a.Value
		if u, ok := a.Value.(uint64); ok && u <= math.MaxInt64 {
			n.value = int64(u)
		}
	default:
		return nil, &ManifestError{Line: n.line, Message: fmt.Sprintf("%s is not allowed here", strings.ToLower(a.Type().String()))}
	}
	return n, nil
}

// tagged reads a value with a tag. The tags of plain YAML say what the value is
// anyway, except for text that looks like something else.
func (y *yamlReader) tagged(a *ast.TagNode) (*node, error) {
	tag := a.Start.Value
	switch tag {
	case "!!map", "!!seq", "!!int", "!!float", "!!bool", "!!null":
		return y.read(a.Value)
	case "!!str":
		n, err := y.read(a.Value)
		if err != nil {
			return nil, err
		}
		if n.kind == scalar {
			return &node{line: n.line, value: text(a.Value)}, nil
		}
	}
	return nil, &ManifestError{Line: lineOf(a), Message: fmt.Sprintf("the tag %s is not allowed here", Shorten(tag))}
}

// mapping reads fields. Those of a merge come after, and only where the mapping
// itself has none of the name.
func (y *yamlReader) mapping(values []*ast.MappingValueNode, line int) (*node, error) {
	n := &node{kind: mapping, line: line}
	seen := map[string]int{}
	var merges []*node
	for _, v := range values {
		value, err := y.read(v.Value)
		if err != nil {
			return nil, err
		}
		if v.Key.IsMergeKey() {
			merges = append(merges, value)
			continue
		}
		f := field{line: lineOf(v.Key), value: value}
		if f.name, err = y.key(v.Key); err != nil {
			return nil, err
		}
		if first, ok := seen[f.name]; ok {
			return nil, &ManifestError{Key: f.name, Line: f.line, Message: fmt.Sprintf("is given twice, first in line %d", first)}
		}
		seen[f.name] = f.line
		n.fields = append(n.fields, f)
	}
	for _, m := range merges {
		if err := y.merge(n, m, seen); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (y *yamlReader) merge(n, from *node, seen map[string]int) error {
	sources := []*node{from}
	if from.kind == list {
		sources = from.items
	}
	for _, s := range sources {
		if s.kind != mapping {
			return &ManifestError{Key: "<<", Line: from.line, Message: "must be a map or a list of maps, not " + s.noun()}
		}
		for _, f := range s.fields {
			if _, ok := seen[f.name]; ok {
				continue
			}
			y.merged++
			seen[f.name] = f.line
			n.fields = append(n.fields, f)
		}
	}
	return nil
}

func (y *yamlReader) key(k ast.Node) (string, error) {
	switch a := k.(type) {
	case *ast.MappingKeyNode:
		return y.key(a.Value)
	case *ast.AnchorNode:
		y.anchors[text(a.Name)] = &node{line: lineOf(a), value: text(a.Value), size: 1}
		return y.key(a.Value)
	case *ast.AliasNode:
		if n, ok := y.anchors[text(a.Value)]; ok && n.kind == scalar {
			return fmt.Sprint(n.value), nil
		}
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return text(a), nil
	}
	return "", &ManifestError{Line: lineOf(k), Message: "a key must be plain text"}
}

// text is a scalar as it was written.
func text(a ast.Node) string {
	switch a := a.(type) {
	case *ast.StringNode:
		return a.Value
	case *ast.LiteralNode:
		return a.Value.Value
	}
	if a == nil || a.GetToken() == nil {
		return ""
	}
	return a.GetToken().Value
}

func lineOf(a ast.Node) int {
	if a == nil {
		return 0
	}
	if m, ok := a.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return lineOf(m.Values[0])
	}
	if v, ok := a.(*ast.MappingValueNode); ok {
		return lineOf(v.Key)
	}
	if t := a.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}
