package app

import (
	"fmt"
)

func (d *decoder) text(key string, v *node, s *string) bool {
	t, ok := v.value.(string)
	switch {
	case !ok && v.kind == scalar:
		d.fail(key, v.line, "must be text, not %s: put it in quotes", v.noun())
	case !ok:
		d.fail(key, v.line, "must be text, not %s", v.noun())
	}
	*s = t
	return ok
}

func (d *decoder) truth(key string, v *node, b *bool) {
	t, ok := v.value.(bool)
	if !ok {
		d.fail(key, v.line, "must be true or false, not %s", v.noun())
	}
	*b = t
}

// limits are the least and the most that a number may be.
type limits struct{ least, most int64 }

func (d *decoder) number(key string, v *node, n *int, l limits) bool {
	i, ok := v.value.(int64)
	if !ok || i < l.least || i > l.most {
		d.fail(key, v.line, "must be a whole number, %d to %d, not %s", l.least, l.most, v.noun())
		return false
	}
	*n = int(i)
	return true
}

func (d *decoder) amount(key string, v *node, mb *int) bool {
	s, ok := v.value.(string)
	if !ok {
		d.fail(key, v.line, "must be an amount with the unit K, M, G or T, such as 64M or 1G, not %s", v.noun())
		return false
	}
	n, err := ParseMB(s)
	if err != nil {
		d.fail(key, v.line, "%v", err)
		return false
	}
	*mb = n
	return true
}

// texts reads a list that is not nil.
func (d *decoder) texts(key string, v *node) []string {
	out := []string{}
	for i, n := range d.list(key, v) {
		var s string
		if d.text(fmt.Sprintf("%s[%d]", key, i), n, &s) {
			out = append(out, s)
		}
	}
	return out
}

func (d *decoder) list(key string, v *node) []*node {
	if v.kind != list {
		d.fail(key, v.line, "must be a list, not %s", v.noun())
	}
	return v.items
}

// env reads variables; null takes one away.
func (d *decoder) env(key string, v *node) map[string]*string {
	if v.kind != mapping {
		d.fail(key, v.line, "must be a map of names and values, not %s", v.noun())
		return nil
	}
	out := map[string]*string{}
	for _, f := range v.fields {
		at := key + "[" + f.name + "]"
		d.lines[at] = f.line
		if f.value.null() {
			out[f.name] = nil
			continue
		}
		s, ok := scalarText(f.value.value)
		if f.value.kind != scalar || !ok {
			d.fail(at, f.line, "must be text, a number, true or false, not %s", f.value.noun())
		}
		out[f.name] = &s
	}
	return out
}
