package app

import (
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

// limits are the least and the most that a number may be.
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

// env reads variables; null takes one away.
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
		s, ok := scalarText(f.Value.Value)
		if f.Value.Kind != yamlfile.Scalar || !ok {
			d.fail(at, f.Line, "must be text, a number, true or false, not %s", f.Value.Noun())
		}
		out[f.Name] = &s
	}
	return out
}
