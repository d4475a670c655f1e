package smoke

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const whole = `
alone: true
build: |
  make
manifests: [manifest.yml, other.yml]
variables: {name: value, count: 2}
services:
- {name: users-db, offering: postgres, plan: small, parameters: {a: [1, two]}}
before: dew target
timeout: 90s
checks:
- name: it answers
  app: shop
  timeout: 5s
  http: GET /config
- http: {method: POST, path: /x, host: other.dew.localhost, port: 8081, headers: {A: b}, body: text, status: [200, 201],
         header: {Content-Type: application/json}, contains: [a, b], equals: text, matches: ^t, json: {"$.scope": admin, "$.users[0].id": 1}}
- log: {contains: ready, source: APP/PROC/WEB}
- kill: {sidecar: config-server}
  exit: {description: ended, reason: CRASHED}
- ssh: {command: pwd, status: 0, contains: /home}
- mail: {to: ada@example.com, subject: hello}
- run: |
    true
    false
- http: /plain
- log: just a text
- ssh: id
  exit: {}
`

func TestParse(t *testing.T) {
	s, err := Parse("smoke.yml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Alone || s.Build != "make\n" || len(s.Manifests) != 2 || s.Variables["name"] != "value" || s.Before != "dew target" || s.Timeout != 90*time.Second {
		t.Errorf("spec = %+v", s)
	}
	if got := s.Services[0]; got.Name != "users-db" || got.Offering != "postgres" || got.Plan != "small" || string(got.Parameters) != `{"a":[1,"two"]}` {
		t.Errorf("service = %+v", got)
	}
	h := s.Checks[1].HTTP
	if h.Method != "POST" || h.Path != "/x" || h.Host != "other.dew.localhost" || h.Port != 8081 || h.Body != "text" || h.Status[1] != 201 ||
		h.Header["Content-Type"] != "application/json" || len(h.Text.Contains) != 2 || *h.Text.Equals != "text" || !h.Text.Matches[0].MatchString("text") || len(h.JSON) != 2 {
		t.Errorf("http = %+v", h)
	}
	if k := s.Checks[3]; k.Kill.Process != "web" || k.Kill.Signal != "KILL" || k.Exit.Description != "ended" || k.Timeout != exitTimeout {
		t.Errorf("kill = %+v %+v", k.Kill, k.Exit)
	}
	if k := s.Checks[0]; k.Timeout != 5*time.Second || k.App != "shop" || k.HTTP.Path != "/config" || k.HTTP.Status[0] != 200 {
		t.Errorf("short form = %+v %+v", k, k.HTTP)
	}
	if k := s.Checks[2]; k.Timeout != checkTimeout {
		t.Errorf("timeout of a check = %s, want %s", k.Timeout, checkTimeout)
	}
	want := []string{
		"it answers", "POST /x of other.dew.localhost at port 8081", "log: ready", "kill sidecar config-server", "ssh: pwd",
		"mail to ada@example.com", "run: true …", "GET /plain", "log: just a text", "ssh: id",
	}
	for i, k := range s.Checks {
		if k.Name != want[i] {
			t.Errorf("name of check %d = %q, want %q", i, k.Name, want[i])
		}
	}
}

func TestParseNothing(t *testing.T) {
	for _, text := range []string{"", "---\n", "# only a comment\n", "checks:\n"} {
		s, err := Parse("smoke.yml", []byte(text))
		if err != nil || len(s.Manifests) != 1 || s.Manifests[0] != "manifest.yml" || s.Timeout != folderTimeout {
			t.Errorf("%q became %+v, %v", text, s, err)
		}
	}
}

// Every mistake is reported with file, line and key, and with the allowed values.
func TestParseMistakes(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"chekcs: []", "f/smoke.yml, line 1: chekcs: is not a known key: did you mean checks? (valid keys: alone, needs, build,"},
		{"checks:\n- http:\n    pathh: /", "f/smoke.yml, line 3: checks[0].http.pathh: is not a known key: did you mean path?"},
		{"checks:\n- {name: x}", "line 2: checks[0]: must have one of http, log, kill, ssh, mail, run"},
		{"checks:\n- {run: x, ssh: y}", "checks[0]: has both run and ssh"},
		{"checks:\n- {http: GET /, exit: {}}", "checks[0].exit: can only be used with kill, ssh or run"},
		{"checks: GET /", "checks: must be a list, not \"GET /\""},
		{"checks: [GET /]", "checks[0]: must be a map with the keys name, app,"},
		{"- x", "must be a map with the keys alone,"},
		{"timeout: 5", "timeout: must be a time such as 30s or 5m, not 5"},
		{"timeout: -5s", "timeout: must be a time"},
		{"alone: perhaps", "alone: must be true or false"},
		{"build: [a]", "build: must be a text, not a list"},
		{"variables: x", "variables: must be a map"},
		{"services: [{name: db}]", "services[0].offering: is missing"},
		{"checks: [{http: config}]", "the path must start with /"},
		{"checks: [{http: get /}]", "the method must be an HTTP method in upper case such as GET or POST, not \"get\""},
		{"checks: [{http: {port: 0}}]", "port: must be a number from 1 to 65535, not 0"},
		{"checks: [{http: {port: many}}]", "port: must be a number from 1 to 65535, not \"many\""},
		{"checks: [{http: {status: [200, x]}}]", "checks[0].http.status[1]: must be a number"},
		{"checks: [{http: {matches: '('}}]", "checks[0].http.matches: error parsing regexp"},
		{"checks: [{http: {json: {scope: x}}}]", `"scope" is not a JSON path`},
		{"checks: [{http: {json: {'$.[': x}}}]", `is not a JSON path`},
		{"checks: [{http: {json: [x]}}]", "json: must be a map of paths to values"},
		{"checks: [{http: {headers: x}}]", "headers: must be a map of texts"},
		{"checks: [{log: {}}]", "needs contains, matches, equals or source"},
		{"checks: [{ssh: {process: web}}]", "ssh.command: is missing"},
		{"checks: [{mail: {subject: x}}]", "mail.to: is missing"},
		{"build: *a", "alias *a has no anchor above it"},
		{"build: !x y", "the tag !x is not allowed here"},
		{"a: [", "the text is not YAML"},
		{"build: x\n---\nbuild: y", "a second YAML document starts here"},
		{"build: x\nbuild: y", "f/smoke.yml, line 2: build: is given twice, first in line 1"},
		{strings.Repeat("[", 101), "nested too deep"},
		{strings.Repeat("#", maxFile+1), "at most"},
	} {
		_, err := Parse("f/smoke.yml", []byte(tt.text))
		e := (*SpecError)(nil)
		if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "f/smoke.yml") {
			t.Errorf("%.60q: error = %v, want one with %q", tt.text, err, tt.want)
		}
	}
}

// Anchors and merges have the same meaning as in manifests.
func TestParseAnchors(t *testing.T) {
	s, err := Parse("smoke.yml", []byte("build: &a make\nbefore: *a\nchecks:\n- &b {run: x, timeout: 1s}\n- {<<: *b, run: z}\n"))
	if err != nil || s.Build != "make" || s.Before != "make" || len(s.Checks) != 2 || s.Checks[1].Run != "z" || s.Checks[1].Timeout != s.Checks[0].Timeout {
		t.Errorf("spec = %+v, %v", s, err)
	}
}

// For any input, the result is a valid spec or errors that name the file.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		whole, "", "checks:\n- http: GET /\n", "checks: [{run: x, timeout: 1h}]", "services: [{}]", "a: &b [*b]", "? [a]\n: b", "checks: [{http: {json: {$..a: 1}}}]",
		"checks: [{http: {json: {\"$[?@.a == 'b']\": .inf}}}]", "\x00", "build: >-\n  a\n b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("smoke.yml", text)
		if err != nil {
			e := (*SpecError)(nil)
			if !errors.As(err, &e) || e.File != "smoke.yml" || e.Message == "" {
				t.Errorf("error = %#v", err)
			}
			return
		}
		if len(s.Manifests) == 0 || s.Timeout <= 0 {
			t.Errorf("spec = %+v", s)
		}
		for _, k := range s.Checks {
			if k.Name == "" || k.Timeout <= 0 || k.HTTP != nil && !strings.HasPrefix(k.HTTP.Path, "/") {
				t.Errorf("check = %+v", k)
			}
		}
	})
}
