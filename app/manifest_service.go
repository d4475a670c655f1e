package app

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"

	"github.com/dewrun/dew/yamlfile"
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
func (d *decoder) services(key string, v *yamlfile.Node) (out []ManifestService) {
	for i, n := range d.list(key, v) {
		at := fmt.Sprintf("%s[%d]", key, i)
		var s ManifestService
		switch n.Kind {
		case yamlfile.Map:
			s = d.service(key, i, n)
		case yamlfile.Scalar:
			if d.text(at, n, &s.Name) && s.Name == "" {
				d.fail(at, n.Line, "must not be empty: give the name of a service instance")
			}
			d.lines[at] = n.Line
		default:
			d.fail(at, n.Line, "must be the name of a service instance, or a map with the key name, not %s", n.Noun())
		}
		out = append(out, s)
	}
	return out
}

func (d *decoder) service(key string, i int, n *yamlfile.Node) (s ManifestService) {
	at, _ := d.entry(key, "name", i, n)
	d.mapping(at+".", n, []yamlfile.Key{
		{Name: "name", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &s.Name) }},
		{Name: "binding_name", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &s.BindingName) }},
		{Name: "parameters", Read: func(key string, v *yamlfile.Node) { s.Parameters = d.object(key, v) }},
	})
	return s
}

// object reads any map, as JSON.
func (d *decoder) object(key string, v *yamlfile.Node) json.RawMessage {
	if v.Kind != yamlfile.Map {
		d.fail(key, v.Line, "must be a map, not %s", v.Noun())
		return nil
	}
	plain, ok := v.PlainWithin(yamlfile.MaxPlain)
	if !ok {
		d.fail(key, v.Line, "stands for more than %d bytes with its anchors expanded", yamlfile.MaxPlain)
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(plain); err != nil {
		d.fail(key, v.Line, "has a value that JSON cannot have, such as .inf or .nan")
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
