package app

import "fmt"

// maxPlain bounds the text that YAML stands for with its anchors written out.
const maxPlain = 4 * maxManifest

// ParseYAML reads YAML that is no manifest, within the bounds of one, as maps by
// string, lists and scalars. What is refused is a *ManifestError.
func ParseYAML(b []byte) (any, error) {
	n, err := parseYAML(b)
	if err != nil {
		return nil, err
	}
	left := maxPlain
	v := n.spell(&left)
	if left < 0 {
		return nil, &ManifestError{Message: fmt.Sprintf("it stands for more than %d bytes with its anchors expanded", maxPlain)}
	}
	return v, nil
}

// spell is the value of a node without its lines. What anchors name is written out
// everywhere; left counts down its text.
func (n *node) spell(left *int) any {
	switch n.kind {
	case list:
		out := make([]any, 0, len(n.items))
		for _, i := range n.items {
			out = append(out, i.spell(left))
		}
		return out
	case mapping:
		out := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			*left -= len(f.name)
			out[f.name] = f.value.spell(left)
		}
		return out
	}
	if s, ok := n.value.(string); ok {
		*left -= len(s)
	}
	return n.value
}
