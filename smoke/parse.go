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

	"github.com/dewrun/dew/app"
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
	if !root.Null() {
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
	if n.Kind != app.YAMLMap {
		d.fail(key, n.Line, "must be a map with the keys %s, not %s", names(keys), noun(n))
		return
	}
	for _, f := range n.Fields {
		i := slices.IndexFunc(keys, func(k known) bool { return k.name == f.Name })
		path := below(key, f.Name)
		switch {
		case i < 0:
			d.fail(path, f.Line, "is not a key that is known here: there are %s", names(keys))
		case !f.Value.Null():
			keys[i].read(path, f.Value)
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
		{"needs", d.texts(&s.Needs)},
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
				d.fail(key, v.Line, "cannot be written as JSON: %v", err)
				return
			}
			s.Parameters = b
		}},
	})
	for _, f := range [][2]string{{"name", s.Name}, {"offering", s.Offering}, {"plan", s.Plan}} {
		if n.Kind == app.YAMLMap && f[1] == "" {
			d.fail(below(key, f[0]), n.Line, "is missing: a service has a name, an offering and a plan (dew marketplace lists them)")
		}
	}
	return s
}

func (d *decoder) check(key string, n *node) (c Check) {
	c.Line = n.Line
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
	case n.Kind != app.YAMLMap:
	case len(kinds) == 0:
		d.fail(key, n.Line, "checks nothing: it needs one of http, log, kill, ssh, mail, run")
	case len(kinds) > 1:
		d.fail(key, n.Line, "has %s at once: make a check of each", strings.Join(kinds, " and "))
	case c.Exit != nil && c.Kill == nil && c.SSH == nil && c.Run == "":
		d.fail(below(key, "exit"), n.Line, "goes with kill, ssh or run: what else would end the process?")
	}
	return c
}

func (d *decoder) http(key string, n *node) *HTTPCheck {
	h := &HTTPCheck{Method: http.MethodGet, Path: "/"}
	if s, ok := n.Value.(string); ok && n.Kind == app.YAMLScalar {
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
		d.fail(key, n.Line, "the path must begin with /, as in GET /health, and it is %q", shorten(h.Path))
	}
	if h.Method == "" || strings.ToUpper(h.Method) != h.Method || strings.ContainsFunc(h.Method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		d.fail(key, n.Line, "the method must be GET, POST or the like, and it is %q", shorten(h.Method))
	}
	if len(h.Status) == 0 {
		h.Status = []int{http.StatusOK}
	}
	return h
}

func (d *decoder) paths(key string, n *node) (out []JSONCheck) {
	if n.Kind != app.YAMLMap {
		d.fail(key, n.Line, `must be a map of paths to values, such as {"$.users[0].name": Ada}, not %s`, noun(n))
		return nil
	}
	for _, f := range n.Fields {
		expr, err := jp.ParseString(f.Name)
		if err != nil || !strings.HasPrefix(f.Name, "$") {
			d.fail(key, f.Line, "%q is not a JSON path such as $.users[0].name", shorten(f.Name))
			continue
		}
		out = append(out, JSONCheck{Path: f.Name, Want: f.Value.Plain(), expr: expr})
	}
	return out
}

func (d *decoder) log(key string, n *node) *LogCheck {
	l := &LogCheck{}
	if s, ok := n.Value.(string); ok && n.Kind == app.YAMLScalar {
		l.Text.Contains = []string{s}
		return l
	}
	d.fields(key, n, append([]known{{"source", d.text(&l.Source)}}, d.textKeys(&l.Text)...))
	if n.Kind == app.YAMLMap && l.Text.empty() && l.Source == "" {
		d.fail(key, n.Line, "needs contains, matches, equals or source")
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
	if text, ok := n.Value.(string); ok && n.Kind == app.YAMLScalar {
		s.Command = text
		return s
	}
	d.fields(key, n, append([]known{
		{"command", d.text(&s.Command)},
		{"process", d.text(&s.Process)},
		{"instance", d.number(&s.Instance, 0, math.MaxInt32)},
		{"status", d.numbers(&s.Status, 0, math.MaxUint8)},
	}, d.textKeys(&s.Text)...))
	if n.Kind == app.YAMLMap && strings.TrimSpace(s.Command) == "" {
		d.fail(below(key, "command"), n.Line, "is missing: say what to run inside of the instance")
	}
	return s
}

func (d *decoder) mail(key string, n *node) *MailCheck {
	m := &MailCheck{}
	d.fields(key, n, append([]known{{"to", d.text(&m.To)}, {"subject", d.text(&m.Subject)}}, d.textKeys(&m.Text)...))
	if n.Kind == app.YAMLMap && m.To == "" {
		d.fail(below(key, "to"), n.Line, "is missing: say whose mail it is")
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
					d.fail(key, v.Line, "%v", err)
					continue
				}
				t.Matches = append(t.Matches, re)
			}
		}},
	}
}

func (d *decoder) text(to *string) reader {
	return func(key string, v *node) {
		if v.Kind != app.YAMLScalar {
			d.fail(key, v.Line, "must be a text, not %s", noun(v))
			return
		}
		*to = fmt.Sprint(v.Value)
	}
}

// texts reads one text, or a list of them.
func (d *decoder) texts(to *[]string) reader {
	return func(key string, v *node) {
		if v.Kind != app.YAMLList {
			v = &node{Kind: app.YAMLList, Line: v.Line, Items: []*node{v}}
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
		if v.Kind != app.YAMLMap {
			d.fail(key, v.Line, "must be a map of texts, not %s", noun(v))
			return
		}
		*to = map[string]string{}
		for _, f := range v.Fields {
			var s string
			d.text(&s)(below(key, f.Name), f.Value)
			(*to)[f.Name] = s
		}
	}
}

func (d *decoder) truth(to *bool) reader {
	return func(key string, v *node) {
		b, ok := v.Value.(bool)
		if !ok {
			d.fail(key, v.Line, "must be true or false, not %s", noun(v))
			return
		}
		*to = b
	}
}

func (d *decoder) number(to *int, least, most int) reader {
	return func(key string, v *node) {
		u, ok := v.Value.(uint64)
		if i, signed := v.Value.(int64); signed && i >= 0 {
			u, ok = uint64(i), true
		}
		if !ok || u > uint64(most) || u < uint64(least) {
			d.fail(key, v.Line, "must be a number from %d to %d, not %s", least, most, noun(v))
			return
		}
		*to = int(u)
	}
}

// numbers reads one number, or a list of them.
func (d *decoder) numbers(to *[]int, least, most int) reader {
	return func(key string, v *node) {
		if v.Kind != app.YAMLList {
			v = &node{Kind: app.YAMLList, Line: v.Line, Items: []*node{v}}
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
		s, _ := v.Value.(string)
		t, err := time.ParseDuration(s)
		if err != nil || t <= 0 {
			d.fail(key, v.Line, "must be a time such as 30s or 5m, not %s", noun(v))
			return
		}
		*to = t
	}
}

// object reads a map of anything.
func (d *decoder) object(key string, v *node) map[string]any {
	m, ok := v.Plain().(map[string]any)
	if !ok {
		d.fail(key, v.Line, "must be a map of names to values, not %s", noun(v))
	}
	return m
}

func (d *decoder) each(key string, v *node, read reader) {
	if v.Kind != app.YAMLList {
		d.fail(key, v.Line, "must be a list, not %s", noun(v))
		return
	}
	for i, one := range v.Items {
		read(fmt.Sprintf("%s[%d]", key, i), one)
	}
}
