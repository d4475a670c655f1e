// Package yamlfile reads YAML files that users write, such as manifests, with the line
// of every value. It is strict: files have size limits and no duplicate keys. It also
// writes readable YAML.
package yamlfile

import (
	"fmt"
	"slices"
	"strconv"
)

// Kind is the kind of a node.
type Kind int

// The kinds of nodes.
const (
	Scalar Kind = iota
	List
	Map
)

// Node is a part of a document with its line, and with anchors and merges resolved. All
// uses of an anchor share a Node, so it must not be changed.
type Node struct {
	Kind   Kind
	Line   int
	Value  any     // of a scalar: nil, bool, int64, uint64 (for large numbers), float64 or string
	Items  []*Node // of a list
	Fields []Field // of a map
	Anchor bool    // the node or a part of it has an anchor
	size   int     // nodes in it
}

// Field is one entry of a map. No two entries of a map have the same name.
type Field struct {
	Name  string
	Line  int
	Value *Node
}

// Error is an error in a file, with its line.
type Error struct {
	Line    int    // 0: not known
	Key     string // empty: not about one key
	Message string
}

func (e *Error) Error() string {
	out := e.Message
	if e.Key != "" {
		out = e.Key + ": " + out
	}
	if e.Line > 0 {
		out = "line " + strconv.Itoa(e.Line) + ": " + out
	}
	return out
}

// Null reports whether the node has no value.
func (n *Node) Null() bool { return n.Kind == Scalar && n.Value == nil }

// Get returns the value of a field, or nil if the map does not have it.
func (n *Node) Get(name string) *Node {
	for _, f := range n.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Noun describes a node in messages: a map, the text "x", the number 1.
func (n *Node) Noun() string {
	switch n.Value.(type) {
	case nil, bool:
		return n.Short()
	case string:
		return "the text " + n.Short()
	}
	return "the number " + n.Short()
}

// Short describes a node in messages in a shorter form: a map, "x", 1.
func (n *Node) Short() string {
	switch n.Kind {
	case List:
		return "a list"
	case Map:
		return "a map"
	}
	switch v := n.Value.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(Shorten(v))
	default:
		return fmt.Sprint(v)
	}
}

// Shorten returns the start of a text that is too long for a message.
func Shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// Plain returns the node as values without lines: maps by string, lists and scalars.
func (n *Node) Plain() any { return n.spell(new(int)) }

// PlainWithin is like Plain. It returns false if the text, with anchors expanded, has
// more than this number of bytes.
func (n *Node) PlainWithin(bytes int) (v any, ok bool) {
	v = n.spell(&bytes)
	return v, bytes >= 0
}

// spell returns the values of a node and subtracts the bytes of their text from left.
func (n *Node) spell(left *int) any {
	switch n.Kind {
	case List:
		out := make([]any, 0, len(n.Items))
		for _, i := range n.Items {
			out = append(out, i.spell(left))
		}
		return out
	case Map:
		out := make(map[string]any, len(n.Fields))
		for _, f := range n.Fields {
			*left -= len(f.Name)
			out[f.Name] = f.Value.spell(left)
		}
		return out
	}
	if s, ok := n.Value.(string); ok {
		*left -= len(s)
	}
	return n.Value
}

// MaxPlain is the maximum size in bytes of the text, with anchors expanded, that Values
// returns.
const MaxPlain = 4 * MaxBytes

// Values parses one document into values without lines: maps by string, lists and
// scalars. The error is an *Error.
func Values(b []byte) (any, error) {
	n, err := Read(b, MaxBytes)
	if err != nil {
		return nil, err
	}
	v, ok := n.PlainWithin(MaxPlain)
	if !ok {
		return nil, &Error{Message: fmt.Sprintf("the text has more than %d bytes after its anchors are expanded", MaxPlain)}
	}
	return v, nil
}

// Key is a key that a map can have.
type Key struct {
	Name string
	// Read reads the value of the key. The path is its name in messages.
	Read func(path string, v *Node)
	// Null calls Read even if the value is null. Otherwise null means not given.
	Null bool
}

// Names returns the names of keys.
func Names(keys []Key) []string {
	out := make([]string, len(keys))
	for i := range keys {
		out[i] = keys[i].Name
	}
	return out
}

// ReadFields reads the fields of a map by its keys. The path of a field is prefix and
// its name. It calls unknown for a field that is not one of the keys.
func (n *Node) ReadFields(prefix string, keys []Key, unknown func(path string, line int)) {
	names := Names(keys)
	for _, f := range n.Fields {
		i := slices.Index(names, f.Name)
		switch {
		case i < 0:
			unknown(prefix+f.Name, f.Line)
		case !f.Value.Null() || keys[i].Null:
			keys[i].Read(prefix+f.Name, f.Value)
		}
	}
}
