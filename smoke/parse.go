package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/ohler55/ojg/jp"

	"github.com/dewrun/dew/spelling"
	"github.com/dewrun/dew/yamlfile"
)

// Parse parses a smoke.yml. file is its name in messages. It is strict, because
// ignoring an unknown key could drop a check. The error is one or more SpecErrors.
func Parse(file string, text []byte) (Spec, error) {
	d := &decoder{file: file}
	root, err := readYAML(file, text)
	if err != nil {
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

// decoder converts nodes to a Spec and collects errors.
type decoder struct {
	file string
	errs []error
}

// reader reads the value of a key.
type reader = func(key string, v *yamlfile.Node)

func (d *decoder) fail(key string, line int, format string, args ...any) {
	d.errs = append(d.errs, &SpecError{File: d.file, Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
}

// fields reads a map that has only these keys.
func (d *decoder) fields(key string, n *yamlfile.Node, keys []yamlfile.Key) {
	if n.Kind != yamlfile.Map {
		d.fail(key, n.Line, "must be a map with the keys %s, not %s", names(keys), n.Short())
		return
	}
	n.ReadFields(below(key, ""), keys, func(path string, line int) {
		hint := ""
		if near := spelling.Nearest(path[strings.LastIndex(path, ".")+1:], yamlfile.Names(keys)); near != "" {
			hint = ": did you mean " + near + "?"
		}
		d.fail(path, line, "is not a known key%s (valid keys: %s)", hint, names(keys))
	})
}

// below returns the path of a name in the map at key.
func below(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func names(keys []yamlfile.Key) string { return strings.Join(yamlfile.Names(keys), ", ") }

func (d *decoder) spec(root *yamlfile.Node) (s Spec) {
	d.fields("", root, []yamlfile.Key{
		{Name: "alone", Read: d.boolean(&s.Alone)},
		{Name: "needs", Read: d.texts(&s.Needs)},
		{Name: "build", Read: d.text(&s.Build)},
		{Name: "manifests", Read: d.texts(&s.Manifests)},
		{Name: "variables", Read: func(key string, v *yamlfile.Node) { s.Variables = d.object(key, v) }},
		{Name: "services", Read: func(key string, v *yamlfile.Node) {
			d.each(key, v, func(key string, v *yamlfile.Node) { s.Services = append(s.Services, d.service(key, v)) })
		}},
		{Name: "before", Read: d.text(&s.Before)},
		{Name: "timeout", Read: d.duration(&s.Timeout)},
		{Name: "checks", Read: func(key string, v *yamlfile.Node) {
			d.each(key, v, func(key string, v *yamlfile.Node) { s.Checks = append(s.Checks, d.check(key, v)) })
		}},
	})
	return s
}

func (d *decoder) service(key string, n *yamlfile.Node) (s Service) {
	d.fields(key, n, []yamlfile.Key{
		{Name: "name", Read: d.text(&s.Name)},
		{Name: "offering", Read: d.text(&s.Offering)},
		{Name: "plan", Read: d.text(&s.Plan)},
		{Name: "parameters", Read: func(key string, v *yamlfile.Node) {
			b, err := json.Marshal(d.object(key, v))
			if err != nil {
				d.fail(key, v.Line, "cannot be converted to JSON: %v", err)
				return
			}
			s.Parameters = b
		}},
	})
	for _, f := range [][2]string{{"name", s.Name}, {"offering", s.Offering}, {"plan", s.Plan}} {
		if n.Kind == yamlfile.Map && f[1] == "" {
			d.fail(below(key, f[0]), n.Line, "is missing: a service needs a name, an offering and a plan (dew marketplace lists them)")
		}
	}
	return s
}

func (d *decoder) check(key string, n *yamlfile.Node) (c Check) {
	c.Line = n.Line
	var kinds []string
	one := func(name string, read reader) yamlfile.Key {
		return yamlfile.Key{Name: name, Read: func(key string, v *yamlfile.Node) {
			kinds = append(kinds, name)
			read(key, v)
		}}
	}
	d.fields(key, n, []yamlfile.Key{
		{Name: "name", Read: d.text(&c.Name)},
		{Name: "app", Read: d.text(&c.App)},
		{Name: "timeout", Read: d.duration(&c.Timeout)},
		one("http", func(key string, v *yamlfile.Node) { c.HTTP = d.http(key, v) }),
		one("log", func(key string, v *yamlfile.Node) { c.Log = d.log(key, v) }),
		one("kill", func(key string, v *yamlfile.Node) { c.Kill = d.kill(key, v) }),
		one("ssh", func(key string, v *yamlfile.Node) { c.SSH = d.ssh(key, v) }),
		one("mail", func(key string, v *yamlfile.Node) { c.Mail = d.mail(key, v) }),
		one("run", d.text(&c.Run)),
		{Name: "exit", Read: func(key string, v *yamlfile.Node) {
			c.Exit = &ExitCheck{}
			d.fields(key, v, []yamlfile.Key{{Name: "description", Read: d.text(&c.Exit.Description)}, {Name: "reason", Read: d.text(&c.Exit.Reason)}})
		}},
	})
	switch {
	case n.Kind != yamlfile.Map:
	case len(kinds) == 0:
		d.fail(key, n.Line, "must have one of http, log, kill, ssh, mail, run")
	case len(kinds) > 1:
		d.fail(key, n.Line, "has both %s: write a separate check for each", strings.Join(kinds, " and "))
	case c.Exit != nil && c.Kill == nil && c.SSH == nil && c.Run == "":
		d.fail(below(key, "exit"), n.Line, "can only be used with kill, ssh or run, which make the process exit")
	}
	return c
}

func (d *decoder) http(key string, n *yamlfile.Node) *HTTPCheck {
	h := &HTTPCheck{Method: http.MethodGet, Path: "/"}
	if s, ok := n.Value.(string); ok && n.Kind == yamlfile.Scalar {
		method, path, both := strings.Cut(strings.TrimSpace(s), " ")
		if !both {
			method, path = http.MethodGet, method
		}
		h.Method, h.Path = method, strings.TrimSpace(path)
	} else {
		d.fields(key, n, append([]yamlfile.Key{
			{Name: "method", Read: d.text(&h.Method)},
			{Name: "path", Read: d.text(&h.Path)},
			{Name: "host", Read: d.text(&h.Host)},
			{Name: "port", Read: d.number(&h.Port, 1, math.MaxUint16)},
			{Name: "headers", Read: d.textMap(&h.Headers)},
			{Name: "body", Read: d.text(&h.Body)},
			{Name: "status", Read: d.numbers(&h.Status, 100, 999)},
			{Name: "header", Read: d.textMap(&h.Header)},
			{Name: "json", Read: func(key string, v *yamlfile.Node) { h.JSON = d.paths(key, v) }},
		}, d.textKeys(&h.Text)...))
	}
	if !strings.HasPrefix(h.Path, "/") {
		d.fail(key, n.Line, "the path must start with /, as in GET /health, not %q", shorten(h.Path))
	}
	if h.Method == "" || strings.ToUpper(h.Method) != h.Method || strings.ContainsFunc(h.Method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		d.fail(key, n.Line, "the method must be an HTTP method in upper case such as GET or POST, not %q", shorten(h.Method))
	}
	if len(h.Status) == 0 {
		h.Status = []int{http.StatusOK}
	}
	return h
}

func (d *decoder) paths(key string, n *yamlfile.Node) (out []JSONCheck) {
	if n.Kind != yamlfile.Map {
		d.fail(key, n.Line, `must be a map of paths to values, such as {"$.users[0].name": Ada}, not %s`, n.Short())
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

func (d *decoder) log(key string, n *yamlfile.Node) *LogCheck {
	l := &LogCheck{}
	if s, ok := n.Value.(string); ok && n.Kind == yamlfile.Scalar {
		l.Text.Contains = []string{s}
		return l
	}
	d.fields(key, n, append([]yamlfile.Key{{Name: "source", Read: d.text(&l.Source)}}, d.textKeys(&l.Text)...))
	if n.Kind == yamlfile.Map && l.Text.empty() && l.Source == "" {
		d.fail(key, n.Line, "needs contains, matches, equals or source")
	}
	return l
}

func (d *decoder) kill(key string, n *yamlfile.Node) *KillCheck {
	k := &KillCheck{Process: "web", Signal: "KILL"}
	d.fields(key, n, []yamlfile.Key{
		{Name: "process", Read: d.text(&k.Process)},
		{Name: "sidecar", Read: d.text(&k.Sidecar)},
		{Name: "instance", Read: d.number(&k.Instance, 0, math.MaxInt32)},
		{Name: "signal", Read: d.text(&k.Signal)},
	})
	return k
}

func (d *decoder) ssh(key string, n *yamlfile.Node) *SSHCheck {
	s := &SSHCheck{Process: "web", Status: []int{0}}
	if text, ok := n.Value.(string); ok && n.Kind == yamlfile.Scalar {
		s.Command = text
		return s
	}
	d.fields(key, n, append([]yamlfile.Key{
		{Name: "command", Read: d.text(&s.Command)},
		{Name: "process", Read: d.text(&s.Process)},
		{Name: "instance", Read: d.number(&s.Instance, 0, math.MaxInt32)},
		{Name: "status", Read: d.numbers(&s.Status, 0, math.MaxUint8)},
	}, d.textKeys(&s.Text)...))
	if n.Kind == yamlfile.Map && strings.TrimSpace(s.Command) == "" {
		d.fail(below(key, "command"), n.Line, "is missing: set the command to run in the instance")
	}
	return s
}

func (d *decoder) mail(key string, n *yamlfile.Node) *MailCheck {
	m := &MailCheck{}
	d.fields(key, n, append([]yamlfile.Key{{Name: "to", Read: d.text(&m.To)}, {Name: "subject", Read: d.text(&m.Subject)}}, d.textKeys(&m.Text)...))
	if n.Kind == yamlfile.Map && m.To == "" {
		d.fail(below(key, "to"), n.Line, "is missing: set the address of the recipient")
	}
	return m
}

// textKeys are the keys of a text condition.
func (d *decoder) textKeys(t *Text) []yamlfile.Key {
	return []yamlfile.Key{
		{Name: "contains", Read: d.texts(&t.Contains)},
		{Name: "equals", Read: func(key string, v *yamlfile.Node) {
			var s string
			d.text(&s)(key, v)
			t.Equals = &s
		}},
		{Name: "matches", Read: func(key string, v *yamlfile.Node) {
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
	return func(key string, v *yamlfile.Node) {
		if v.Kind != yamlfile.Scalar {
			d.fail(key, v.Line, "must be a text, not %s", v.Short())
			return
		}
		*to = fmt.Sprint(v.Value)
	}
}

// texts reads one text, or a list of them.
func (d *decoder) texts(to *[]string) reader {
	return func(key string, v *yamlfile.Node) {
		if v.Kind != yamlfile.List {
			v = &yamlfile.Node{Kind: yamlfile.List, Line: v.Line, Items: []*yamlfile.Node{v}}
		}
		d.each(key, v, func(key string, v *yamlfile.Node) {
			var s string
			d.text(&s)(key, v)
			*to = append(*to, s)
		})
	}
}

func (d *decoder) textMap(to *map[string]string) reader {
	return func(key string, v *yamlfile.Node) {
		if v.Kind != yamlfile.Map {
			d.fail(key, v.Line, "must be a map of texts, not %s", v.Short())
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

func (d *decoder) boolean(to *bool) reader {
	return func(key string, v *yamlfile.Node) {
		b, ok := v.Value.(bool)
		if !ok {
			d.fail(key, v.Line, "must be true or false, not %s", v.Short())
			return
		}
		*to = b
	}
}

func (d *decoder) number(to *int, least, most int) reader {
	return func(key string, v *yamlfile.Node) {
		u, ok := v.Value.(uint64)
		if i, signed := v.Value.(int64); signed && i >= 0 {
			u, ok = uint64(i), true
		}
		if !ok || u > uint64(most) || u < uint64(least) {
			d.fail(key, v.Line, "must be a number from %d to %d, not %s", least, most, v.Short())
			return
		}
		*to = int(u)
	}
}

// numbers reads one number, or a list of them.
func (d *decoder) numbers(to *[]int, least, most int) reader {
	return func(key string, v *yamlfile.Node) {
		if v.Kind != yamlfile.List {
			v = &yamlfile.Node{Kind: yamlfile.List, Line: v.Line, Items: []*yamlfile.Node{v}}
		}
		*to = nil
		d.each(key, v, func(key string, v *yamlfile.Node) {
			var n int
			d.number(&n, least, most)(key, v)
			*to = append(*to, n)
		})
	}
}

func (d *decoder) duration(to *time.Duration) reader {
	return func(key string, v *yamlfile.Node) {
		s, _ := v.Value.(string)
		t, err := time.ParseDuration(s)
		if err != nil || t <= 0 {
			d.fail(key, v.Line, "must be a time such as 30s or 5m, not %s", v.Short())
			return
		}
		*to = t
	}
}

// object reads a map of any values.
func (d *decoder) object(key string, v *yamlfile.Node) map[string]any {
	m, ok := v.Plain().(map[string]any)
	if !ok {
		d.fail(key, v.Line, "must be a map of names to values, not %s", v.Short())
	}
	return m
}

func (d *decoder) each(key string, v *yamlfile.Node, read reader) {
	if v.Kind != yamlfile.List {
		d.fail(key, v.Line, "must be a list, not %s", v.Short())
		return
	}
	for i, one := range v.Items {
		read(fmt.Sprintf("%s[%d]", key, i), one)
	}
}
