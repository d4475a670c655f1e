package app

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/dewrun/dew/yamlfile"
)

func (d *decoder) text(key string, v *yamlfile.Node, s *string) bool {
	t, ok := v.Value.(string)
	switch {
	case !ok && v.Kind == yamlfile.Scalar:
		d.fail(key, v.Line, "must be text, not %s: put it in quotes", v.Noun())
	case !ok:
		d.fail(key, v.Line, "must be text, not %s", v.Noun())
	}
	*s = t
	return ok
}

func (d *decoder) truth(key string, v *yamlfile.Node, b *bool) {
	t, ok := v.Value.(bool)
	if !ok {
		d.fail(key, v.Line, "must be true or false, not %s", v.Noun())
	}
	*b = t
}

// limits are the smallest and the largest allowed number.
type limits struct{ least, most int64 }

func (d *decoder) number(key string, v *yamlfile.Node, n *int, l limits) bool {
	i, ok := v.Value.(int64)
	if !ok || i < l.least || i > l.most {
		d.fail(key, v.Line, "must be a whole number, %d to %d, not %s", l.least, l.most, v.Noun())
		return false
	}
	*n = int(i)
	return true
}

func (d *decoder) amount(key string, v *yamlfile.Node, mb *int) bool {
	s, ok := v.Value.(string)
	if !ok {
		d.fail(key, v.Line, "must be an amount with the unit K, M, G or T, such as 64M or 1G, not %s", v.Noun())
		return false
	}
	n, err := ParseMB(s)
	if err != nil {
		d.fail(key, v.Line, "%v", err)
		return false
	}
	*mb = n
	return true
}

// texts reads a list that is not nil.
func (d *decoder) texts(key string, v *yamlfile.Node) []string {
	out := []string{}
	for i, n := range d.list(key, v) {
		var s string
		if d.text(fmt.Sprintf("%s[%d]", key, i), n, &s) {
			out = append(out, s)
		}
	}
	return out
}

func (d *decoder) list(key string, v *yamlfile.Node) []*yamlfile.Node {
	if v.Kind != yamlfile.List {
		d.fail(key, v.Line, "must be a list, not %s", v.Noun())
	}
	return v.Items
}

// env reads environment variables; null removes one.
func (d *decoder) env(key string, v *yamlfile.Node) map[string]*string {
	if v.Kind != yamlfile.Map {
		d.fail(key, v.Line, "must be a map of names and values, not %s", v.Noun())
		return nil
	}
	out := map[string]*string{}
	for _, f := range v.Fields {
		at := key + "[" + f.Name + "]"
		d.lines[at] = f.Line
		if f.Value.Null() {
			out[f.Name] = nil
			continue
		}
		s, ok := yamlfile.ScalarText(f.Value.Value)
		if f.Value.Kind != yamlfile.Scalar || !ok {
			d.fail(at, f.Line, "must be text, a number, true or false, not %s", f.Value.Noun())
		}
		out[f.Name] = &s
	}
	return out
}

func (d *decoder) docker(key string, v *yamlfile.Node) *ManifestDocker {
	out := &ManifestDocker{}
	const missing = "is missing: name the image as host:port/repository:tag"
	given := v.Kind == yamlfile.Map && d.required(key+".", v, "image", missing)
	d.mapping(key+".", v, []yamlfile.Key{
		{Name: "image", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &out.Image) }},
		{Name: "username", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &out.Username) }},
		{Name: "password", Read: func(key string, v *yamlfile.Node) {
			d.fail(key, v.Line, "is not allowed in a manifest: set the environment variable CF_DOCKER_PASSWORD")
		}},
	})
	if given && out.Image == "" {
		d.fail(key+".image", v.Line, missing)
	}
	return out
}

// dockerConflicts refuses keys that contradict the key docker.
func (d *decoder) dockerConflicts(a *ManifestApp) {
	if a.Docker == nil {
		if a.Lifecycle == LifecycleDocker {
			d.fail("lifecycle", a.Line("lifecycle"), "is %s, but the app has no image: set docker.image", LifecycleDocker)
		}
		return
	}
	for _, c := range []struct {
		key string
		is  bool
	}{
		{"path", a.Path != ""},
		{"buildpacks", len(a.Buildpacks) > 0},
		{"stack", a.Stack != nil && *a.Stack != ""},
		{"lifecycle", a.Lifecycle != "" && a.Lifecycle != LifecycleDocker},
	} {
		if c.is {
			d.fail(c.key, a.Line(c.key), "cannot be used together with docker: an app is either a Docker image or made from the files you push")
		}
	}
}

// services reads the entries of services: names, or maps with further keys.
func (d *decoder) services(key string, v *yamlfile.Node) (out []ManifestService) {
	for i, n := range d.list(key, v) {
		at := fmt.Sprintf("%s[%d]", key, i)
		var s ManifestService
		switch n.Kind {
		case yamlfile.Map:
			s = d.service(key, i, n)
		case yamlfile.Scalar:
			if d.text(at, n, &s.Name) && s.Name == "" {
				d.fail(at, n.Line, "must not be empty: set the name of a service instance")
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

// object reads any map and returns it as JSON.
func (d *decoder) object(key string, v *yamlfile.Node) json.RawMessage {
	if v.Kind != yamlfile.Map {
		d.fail(key, v.Line, "must be a map, not %s", v.Noun())
		return nil
	}
	plain, ok := v.PlainWithin(yamlfile.MaxPlain)
	if !ok {
		d.fail(key, v.Line, "has more than %d bytes after its anchors are expanded", yamlfile.MaxPlain)
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(plain); err != nil {
		d.fail(key, v.Line, "has a value that JSON does not support, such as .inf or .nan")
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}
