package app

// YAMLKind is what a part of a document is.
type YAMLKind = kind

// The kinds of parts.
const (
	YAMLScalar = scalar
	YAMLList   = list
	YAMLMap    = mapping
)

// YAML is a part of a document that people write, with the line that they find it in.
// Anchors and merges are resolved.
type YAML struct {
	Kind   YAMLKind
	Line   int
	Value  any         // of a scalar: nil, bool, int64, uint64 (if it must be), float64 or string
	Items  []*YAML     // of a list
	Fields []YAMLField // of a map
}

// YAMLField is one entry of a map. No name is there twice.
type YAMLField struct {
	Name  string
	Line  int
	Value *YAML
}

// ReadYAML reads one document within the bounds of a manifest, for files that stand
// beside one. The error is a *ManifestError.
func ReadYAML(b []byte) (*YAML, error) {
	n, err := parseYAML(b)
	if err != nil {
		return nil, err
	}
	return n.tree(), nil
}

// tree is the node for others, who may change theirs.
func (n *node) tree() *YAML {
	out := &YAML{Kind: n.kind, Line: n.line, Value: n.value}
	for _, item := range n.items {
		out.Items = append(out.Items, item.tree())
	}
	for _, f := range n.fields {
		out.Fields = append(out.Fields, YAMLField{Name: f.name, Line: f.line, Value: f.value.tree()})
	}
	return out
}

// Null tells whether nothing is there.
func (y *YAML) Null() bool { return y.Kind == YAMLScalar && y.Value == nil }

// Plain is the part as values that JSON knows.
func (y *YAML) Plain() any {
	switch y.Kind {
	case YAMLList:
		out := make([]any, len(y.Items))
		for i, item := range y.Items {
			out[i] = item.Plain()
		}
		return out
	case YAMLMap:
		out := make(map[string]any, len(y.Fields))
		for _, f := range y.Fields {
			out[f.Name] = f.Value.Plain()
		}
		return out
	}
	return y.Value
}
