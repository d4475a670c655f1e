package yamlfile

import (
	"fmt"
	"math"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// resolver creates nodes from a syntax tree.
type resolver struct {
	anchors map[string]*Node
	merged  int // number of fields that merges copied
	depth   int
}

func (y *resolver) read(a ast.Node) (*Node, error) {
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
		return nil, &Error{Line: lineOf(a), Message: fmt.Sprintf("the text has more than %d values after its anchors are expanded", maxNodes)}
	}
	return n, nil
}

// count sets the size of a node, and whether it has an anchor.
func (n *Node) count() {
	n.size = 1
	for _, i := range n.Items {
		n.size += i.size
		n.Anchor = n.Anchor || i.Anchor
	}
	for _, f := range n.Fields {
		n.size += f.Value.size
		n.Anchor = n.Anchor || f.Value.Anchor
	}
}

func (y *resolver) node(a ast.Node) (*Node, error) {
	line := lineOf(a)
	switch a := a.(type) {
	case *ast.MappingNode:
		return y.mapping(a.Values, line)
	case *ast.MappingValueNode:
		return y.mapping([]*ast.MappingValueNode{a}, line)
	case *ast.SequenceNode:
		n := &Node{Kind: List, Line: line}
		for _, v := range a.Values {
			item, err := y.read(v)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
		return n, nil
	case *ast.AnchorNode:
		n, err := y.read(a.Value)
		if err != nil {
			return nil, err
		}
		c := *n
		c.Anchor = true
		y.anchors[text(a.Name)] = &c
		return &c, nil
	case *ast.AliasNode:
		n, ok := y.anchors[text(a.Value)]
		if !ok {
			return nil, &Error{Line: line, Message: fmt.Sprintf("alias *%s has no anchor above it: write &%s before the value to reuse", text(a.Value), text(a.Value))}
		}
		c := *n // keep the line of the use, which users look for
		c.Line = line
		return &c, nil
	case *ast.TagNode:
		return y.tagged(a)
	case *ast.LiteralNode:
		return &Node{Line: line, Value: a.Value.Value}, nil
	}
	return plain(a)
}

// plain parses a scalar.
func plain(a ast.Node) (*Node, error) {
	n := &Node{Line: lineOf(a)}
	switch a := a.(type) {
	case nil, *ast.NullNode:
	case *ast.StringNode:
		n.Value = a.Value
	case *ast.BoolNode:
		n.Value = a.Value
	case *ast.FloatNode:
		n.Value = a.Value
	case *ast.InfinityNode:
		n.Value = a.Value
	case *ast.NanNode:
		n.Value = math.NaN()
	case *ast.IntegerNode:
		n.Value = a.Value
		if u, ok := a.Value.(uint64); ok && u <= math.MaxInt64 {
			n.Value = int64(u)
		}
	default:
		return nil, &Error{Line: n.Line, Message: fmt.Sprintf("%s is not allowed here", strings.ToLower(a.Type().String()))}
	}
	return n, nil
}

// tagged parses a value with a tag. Standard YAML tags have no effect, except !!str for
// text that looks like another type.
func (y *resolver) tagged(a *ast.TagNode) (*Node, error) {
	tag := a.Start.Value
	switch tag {
	case "!!map", "!!seq", "!!int", "!!float", "!!bool", "!!null":
		return y.read(a.Value)
	case "!!str":
		n, err := y.read(a.Value)
		if err != nil {
			return nil, err
		}
		if n.Kind == Scalar {
			return &Node{Line: n.Line, Value: text(a.Value)}, nil
		}
	}
	return nil, &Error{Line: lineOf(a), Message: fmt.Sprintf("the tag %s is not allowed here", Shorten(tag))}
}

// mapping parses the fields of a map. Fields of a merge are added last, and only if the
// map itself does not have them.
func (y *resolver) mapping(values []*ast.MappingValueNode, line int) (*Node, error) {
	n := &Node{Kind: Map, Line: line}
	seen := map[string]int{}
	var merges []*Node
	for _, v := range values {
		value, err := y.read(v.Value)
		if err != nil {
			return nil, err
		}
		if v.Key.IsMergeKey() {
			merges = append(merges, value)
			continue
		}
		f := Field{Line: lineOf(v.Key), Value: value}
		if f.Name, err = y.key(v.Key); err != nil {
			return nil, err
		}
		if first, ok := seen[f.Name]; ok {
			return nil, &Error{Key: f.Name, Line: f.Line, Message: fmt.Sprintf("is given twice, first in line %d", first)}
		}
		seen[f.Name] = f.Line
		n.Fields = append(n.Fields, f)
	}
	for _, m := range merges {
		if err := y.merge(n, m, seen); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (y *resolver) merge(n, from *Node, seen map[string]int) error {
	sources := []*Node{from}
	if from.Kind == List {
		sources = from.Items
	}
	for _, s := range sources {
		if s.Kind != Map {
			return &Error{Key: "<<", Line: from.Line, Message: "must be a map or a list of maps, not " + s.Noun()}
		}
		for _, f := range s.Fields {
			if _, ok := seen[f.Name]; ok {
				continue
			}
			y.merged++
			seen[f.Name] = f.Line
			n.Fields = append(n.Fields, f)
		}
	}
	return nil
}

func (y *resolver) key(k ast.Node) (string, error) {
	switch a := k.(type) {
	case *ast.MappingKeyNode:
		return y.key(a.Value)
	case *ast.AnchorNode:
		y.anchors[text(a.Name)] = &Node{Line: lineOf(a), Value: text(a.Value), size: 1}
		return y.key(a.Value)
	case *ast.AliasNode:
		if n, ok := y.anchors[text(a.Value)]; ok && n.Kind == Scalar {
			return fmt.Sprint(n.Value), nil
		}
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return text(a), nil
	}
	return "", &Error{Line: lineOf(k), Message: "a key must be plain text"}
}

// text returns a scalar as it was written.
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
