package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ohler55/ojg/jp"
)

// Parse reads a smoke.yml; file is how messages name it. It is strict: a key that
// it does not know would else be a check that nobody makes. The error is one or
// more SpecErrors.
func Parse(file string, text []byte) (Spec, error) {
	d := &decoder{file: file}
	root, err := parseYAML(text)
	if err != nil {
		if e := (*SpecError)(nil); errors.As(err, &e) {
			e.File = file
		}
		return Spec{}, err
	}
	var s Spec
	if !root.null() {
		s = d.spec(root)
	}
	if err := errors.Join(d.errs...); err != nil {
		return Spec{}, err
	}
	return s.withDefaults(), nil
}

// decoder makes a Spec of nodes and collects what is wrong with them.
type decoder struct {
	file string
	errs []error
}

// reader reads the value of a key.
type reader func(key string, v *node)

// known is a key that a map may have.
type known struct {
	name string
	read reader
}

func (d *decoder) fail(key string, line int, format string, args ...any) {
	d.errs = append(d.errs, &SpecError{File: d.file, Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
}

// fields reads a map that has no keys but these.
func (d *decoder) fields(key string, n *node, keys []known) {
	if n.kind != mapping {
		d.fail(key, n.line, "must be a map with the keys %s, not %s", names(keys), n.noun())
		return
	}
	for _, f := range n.fields {
		i := slices.IndexFunc(keys, func(k known) bool { return k.name == f.name })
		path := below(key, f.name)
		switch {
		case i < 0:
			d.fail(path, f.line, "is not a key that is known here: there are %s", names(keys))
		case !f.value.null():
			keys[i].read(path, f.value)
		}
	}
}

func below(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func names(keys []known) string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return strings.Join(all, ", ")
}

func (d *decoder) spec(root *node) (s Spec) {
	d.fields("", root, []known{
		{"alone", d.truth(&s.Alone)},
		{"build", d.text(&s.Build)},
		{"manifests", d.texts(&s.Manifests)},
		{"variables", func(key string, v *node) { s.Variables = d.object(key, v) }},
		{"services", func(key string, v *node) {
			d.each(key, v, func(key string, v *node) { s.Services = append(s.Services, d.service(key, v)) })
		}},
		{"before", d.text(&s.Before)},
		{"timeout", d.duration(&s.Timeout)},
		{"checks", func(key string, v *node) {
			d.each(key, v, func(key string, v *node) { s.Checks = append(s.Checks, d.check(key, v)) })
		}},
	})
	return s
}

func (d *decoder) service(key string, n *node) (s Service) {
	d.fields(key, n, []known{
		{"name", d.text(&s.Name)},
		{"offering", d.text(&s.Offering)},
		{"plan", d.text(&s.Plan)},
		{"parameters", func(key string, v *node) {
			b, err := json.Marshal(d.object(key, v))
			if err != nil {
				d.fail(key, v.line, "cannot be written as JSON: %v", err)
				return
			}
			s.Parameters = b
		}},
	})
	for _, f := range [][2]string{{"name", s.Name}, {"offering", s.Offering}, {"plan", s.Plan}} {
		if n.kind == mapping && f[1] == "" {
			d.fail(below(key, f[0]), n.line, "is missing: a service has a name, an offering and a plan (dew marketplace lists them)")
		}
	}
	return s
}

func (d *decoder) check(key string, n *node) (c Check) {
	c.Line = n.line
	var kinds []string
	one := func(name string, read reader) known {
		return known{name, func(key string, v *node) {
			kinds = append(kinds, name)
			read(key, v)
		}}
	}
	d.fields(key, n, []known{
		{"name", d.text(&c.Name)},
		{"app", d.text(&c.App)},
		{"timeout", d.duration(&c.Timeout)},
		one("http", func(key string, v *node) { c.HTTP = d.http(key, v) }),
		one("log", func(key string, v *node) { c.Log = d.log(key, v) }),
		one("kill", func(key string, v *node) { c.Kill = d.kill(key, v) }),
		one("ssh", func(key string, v *node) { c.SSH = d.ssh(key, v) }),
		one("mail", func(key string, v *node) { c.Mail = d.mail(key, v) }),
		one("run", d.text(&c.Run)),
		{"exit", func(key string, v *node) {
			c.Exit = &ExitCheck{}
			d.fields(key, v, []known{{"description", d.text(&c.Exit.Description)}, {"reason", d.text(&c.Exit.Reason)}})
		}},
	})
	switch {
	case n.kind != mapping:
	case len(kinds) == 0:
		d.fail(key, n.line, "checks nothing: it needs one of http, log, kill, ssh, mail, run")
	case len(kinds) > 1:
		d.fail(key, n.line, "has %s at once: make a check of each", strings.Join(kinds, " and "))
	case c.Exit != nil && c.Kill == nil && c.SSH == nil && c.Run == "":
		d.fail(below(key, "exit"), n.line, "goes with kill, ssh or run: what else would end the process?")
	}
	return c
}

func (d *decoder) http(key string, n *node) *HTTPCheck {
	h := &HTTPCheck{Method: http.MethodGet, Path: "/"}
	if s, ok := n.value.(string); ok && n.kind == scalar {
		method, path, both := strings.Cut(strings.TrimSpace(s), " ")
		if !both {
			method, path = http.MethodGet, method
		}
		h.Method, h.Path = method, strings.TrimSpace(path)
	} else {
		d.fields(key, n, append([]known{
			{"method", d.text(&h.Method)},
			{"path", d.text(&h.Path)},
			{"host", d.text(&h.Host)},
			{"port", d.number(&h.Port, 1, math.MaxUint16)},
			{"headers", d.textMap(&h.Headers)},
			{"body", d.text(&h.Body)},
			{"status", d.numbers(&h.Status, 100, 999)},
			{"header", d.textMap(&h.Header)},
			{"json", func(key string, v *node) { h.JSON = d.paths(key, v) }},
		}, d.textKeys(&h.Text)...))
	}
	if !strings.HasPrefix(h.Path, "/") {
		d.fail(key, n.line, "the path must begin with /, as in GET /health, and it is %q", shorten(h.Path))
	}
	if h.Method == "" || strings.ToUpper(h.Method) != h.Method || strings.ContainsFunc(h.Method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		d.fail(key, n.line, "the method must be GET, POST or the like, and it is %q", shorten(h.Method))
	}
	if len(h.Status) == 0 {
		h.Status = []int{http.StatusOK}
	}
	return h
}

func (d *decoder) paths(key string, n *node) (out []JSONCheck) {
	if n.kind != mapping {
		d.fail(key, n.line, `must be a map of paths to values, such as {"$.users[0].name": Ada}, not %s`, n.noun())
		return nil
	}
	for _, f := range n.fields {
		expr, err := jp.ParseString(f.name)
		if err != nil || !strings.HasPrefix(f.name, "$") {
			d.fail(key, f.line, "%q is not a JSON path such as $.users[0].name", shorten(f.name))
			continue
		}
		out = append(out, JSONCheck{Path: f.name, Want: f.value.plain(), expr: expr})
	}
	return out
}

func (d *decoder) log(key string, n *node) *LogCheck {
	l := &LogCheck{}
	if s, ok := n.value.(string); ok && n.kind == scalar {
		l.Text.Contains = []string{s}
		return l
	}
	d.fields(key, n, append([]known{{"source", d.text(&l.Source)}}, d.textKeys(&l.Text)...))
	if n.kind == mapping && l.Text.empty() && l.Source == "" {
		d.fail(key, n.line, "needs contains, matches, equals or source")
	}
	return l
}

func (d *decoder) kill(key string, n *node) *KillCheck {
	k := &KillCheck{Process: "web", Signal: "KILL"}
	d.fields(key, n, []known{
		{"process", d.text(&k.Process)},
		{"sidecar", d.text(&k.Sidecar)},
		{"instance", d.number(&k.Instance, 0, math.MaxInt32)},
		{"signal", d.text(&k.Signal)},
	})
	return k
}

func (d *decoder) ssh(key string, n *node) *SSHCheck {
	s := &SSHCheck{Process: "web", Status: []int{0}}
	if text, ok := n.value.(string); ok && n.kind == scalar {
		s.Command = text
		return s
	}
	d.fields(key, n, append([]known{
		{"command", d.text(&s.Command)},
		{"process", d.text(&s.Process)},
		{"instance", d.number(&s.Instance, 0, math.MaxInt32)},
		{"status", d.numbers(&s.Status, 0, math.MaxUint8)},
	}, d.textKeys(&s.Text)...))
	if n.kind == mapping && strings.TrimSpace(s.Command) == "" {
		d.fail(below(key, "command"), n.line, "is missing: say what to run inside of the instance")
	}
	return s
}

func (d *decoder) mail(key string, n *node) *MailCheck {
	m := &MailCheck{}
	d.fields(key, n, append([]known{{"to", d.text(&m.To)}, {"subject", d.text(&m.Subject)}}, d.textKeys(&m.Text)...))
	if n.kind == mapping && m.To == "" {
		d.fail(below(key, "to"), n.line, "is missing: say whose mail it is")
	}
	return m
}

// textKeys are the keys that say what a text must be like.
func (d *decoder) textKeys(t *Text) []known {
	return []known{
		{"contains", d.texts(&t.Contains)},
		{"equals", func(key string, v *node) {
			var s string
			d.text(&s)(key, v)
			t.Equals = &s
		}},
		{"matches", func(key string, v *node) {
			var all []string
			d.texts(&all)(key, v)
			for _, s := range all {
				re, err := regexp.Compile(s)
				if err != nil {
					d.fail(key, v.line, "%v", err)
					continue
				}
				t.Matches = append(t.Matches, re)
			}
		}},
	}
}

func (d *decoder) text(to *string) reader {
	return func(key string, v *node) {
		if v.kind != scalar {
			d.fail(key, v.line, "must be a text, not %s", v.noun())
			return
		}
		*to = fmt.Sprint(v.value)
	}
}

// texts reads one text, or a list of them.
func (d *decoder) texts(to *[]string) reader {
	return func(key string, v *node) {
		if v.kind != list {
			v = &node{kind: list, line: v.line, list: []*node{v}}
		}
		d.each(key, v, func(key string, v *node) {
			var s string
			d.text(&s)(key, v)
			*to = append(*to, s)
		})
	}
}

func (d *decoder) textMap(to *map[string]string) reader {
	return func(key string, v *node) {
		if v.kind != mapping {
			d.fail(key, v.line, "must be a map of texts, not %s", v.noun())
			return
		}
		*to = map[string]string{}
		for _, f := range v.fields {
			var s string
			d.text(&s)(below(key, f.name), f.value)
			(*to)[f.name] = s
		}
	}
}

func (d *decoder) truth(to *bool) reader {
	return func(key string, v *node) {
		b, ok := v.value.(bool)
		if !ok {
			d.fail(key, v.line, "must be true or false, not %s", v.noun())
			return
		}
		*to = b
	}
}

func (d *decoder) number(to *int, least, most int) reader {
	return func(key string, v *node) {
		u, ok := v.value.(uint64)
		if i, signed := v.value.(int64); signed && i >= 0 {
			u, ok = uint64(i), true
		}
		if !ok || u > uint64(most) || u < uint64(least) {
			d.fail(key, v.line, "must be a number from %d to %d, not %s", least, most, v.noun())
			return
		}
		*to = int(u)
	}
}

// numbers reads one number, or a list of them.
func (d *decoder) numbers(to *[]int, least, most int) reader {
	return func(key string, v *node) {
		if v.kind != list {
			v = &node{kind: list, line: v.line, list: []*node{v}}
		}
		*to = nil
		d.each(key, v, func(key string, v *node) {
			var n int
			d.number(&n, least, most)(key, v)
			*to = append(*to, n)
		})
	}
}

func (d *decoder) duration(to *time.Duration) reader {
	return func(key string, v *node) {
		s, _ := v.value.(string)
		t, err := time.ParseDuration(s)
		if err != nil || t <= 0 {
			d.fail(key, v.line, "must be a time such as 30s or 5m, not %s", v.noun())
			return
		}
		*to = t
	}
}

// object reads a map of anything.
func (d *decoder) object(key string, v *node) map[string]any {
	m, ok := v.plain().(map[string]any)
	if !ok {
		d.fail(key, v.line, "must be a map of names to values, not %s", v.noun())
	}
	return m
}

func (d *decoder) each(key string, v *node, read reader) {
	if v.kind != list {
		d.fail(key, v.line, "must be a list, not %s", v.noun())
		return
	}
	for i, one := range v.list {
		read(fmt.Sprintf("%s[%d]", key, i), one)
	}
}
