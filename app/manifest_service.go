package app

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"
)

// ManifestService is one entry of services: a service instance of the space that
// the app is to be bound to. The registry knows nothing of them: who applies the
// manifest binds.
type ManifestService struct {
	Name        string
	BindingName string          // empty: that of the service instance
	Parameters  json.RawMessage // an object; nil: none
}

// services reads names, and maps that say more.
func (d *decoder) services(key string, v *node) (out []ManifestService) {
	for i, n := range d.list(key, v) {
		at := fmt.Sprintf("%s[%d]", key, i)
		var s ManifestService
		switch n.kind {
		case mapping:
			s = d.service(key, i, n)
		case scalar:
			if d.text(at, n, &s.Name) && s.Name == "" {
				d.fail(at, n.line, "must not be empty: give the name of a service instance")
			}
			d.lines[at] = n.line
		default:
			d.fail(at, n.line, "must be the name of a service instance, or a map with the key name, not %s", n.noun())
		}
		out = append(out, s)
	}
	return out
}

func (d *decoder) service(key string, i int, n *node) (s ManifestService) {
	at, _ := d.entry(key, "name", i, n)
	d.mapping(at+".", n, []manifestKey{
		{name: "name", read: func(key string, v *node) { d.text(key, v, &s.Name) }},
		{name: "binding_name", read: func(key string, v *node) { d.text(key, v, &s.BindingName) }},
		{name: "parameters", read: func(key string, v *node) { s.Parameters = d.object(key, v) }},
	})
	return s
}

// object reads any map, as JSON.
func (d *decoder) object(key string, v *node) json.RawMessage {
	if v.kind != mapping {
		d.fail(key, v.line, "must be a map, not %s", v.noun())
		return nil
	}
	left := maxPlain
	plain := v.spell(&left)
	if left < 0 {
		d.fail(key, v.line, "stands for more than %d bytes with its anchors expanded", maxPlain)
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(plain); err != nil {
		d.fail(key, v.line, "has a value that JSON cannot have, such as .inf or .nan")
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// inline is JSON in a manifest: it is YAML, too.
type inline json.RawMessage

// MarshalYAML gives the text as it is.
func (j inline) MarshalYAML() ([]byte, error) { return j, nil }

func (m *ManifestService) rendered() yaml.MapSlice {
	out := yaml.MapSlice{{Key: "name", Value: m.Name}}
	if m.BindingName != "" {
		out = append(out, yaml.MapItem{Key: "binding_name", Value: m.BindingName})
	}
	if m.Parameters != nil {
		out = append(out, yaml.MapItem{Key: "parameters", Value: inline(m.Parameters)})
	}
	return out
}
