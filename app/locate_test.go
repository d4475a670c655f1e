package app

import "testing"

var sized = map[string]any{"size": "256M"}

const located = `applications:
- name: "my shop"
  memory: ((size))
  stack: windows
  buildpacks: [cobol]
  sidecars:
  - {name: config server, command: x, process_types: [web], memory: 16M}
  routes:
  - route: a.dew.localhost
  services:
  - db
  - name: queue
  processes:
  - type: worker
    disk-quota: 1G
`

// What the daemon says about a manifest, whose lines it has not seen, is found in the
// file of the user.
func TestLocate(t *testing.T) {
	m, _, err := ParseManifest([]byte(located), sized)
	must(t, err)
	for text, want := range map[string]struct {
		line int
		rest string
	}{
		`app "my shop", line 1: memory: m: n`:                                      {3, `app "my shop": memory: m: n`},
		`app "my shop", line 1: sidecars[config server].memory: m`:                 {7, `app "my shop": sidecars[config server].memory: m`},
		`app "my shop", line 1: routes[0].route: m`:                                {9, `app "my shop": routes[0].route: m`},
		`app "my shop", line 1: processes[worker].disk_quota: m`:                   {15, `app "my shop": processes[worker].disk_quota: m`},
		`app "my shop", line 1: default-route: m`:                                  {2, `app "my shop": default-route: m`},
		`app "my shop": no key here`:                                               {2, `app "my shop": no key here`},
		`app "other", line 1: memory: m`:                                           {0, `app "other": memory: m`},
		`For application 'my shop': Stack must be an existing stack`:               {4, `For application 'my shop': Stack must be an existing stack`},
		`For application 'my shop': Buildpack must be an existing admin`:           {5, `For application 'my shop': Buildpack must be an existing admin`},
		`For application 'my shop': Service instance 'queue' not found`:            {12, `For application 'my shop': Service instance 'queue' not found`},
		`For application 'my shop': For service 'db': x`:                           {11, `For application 'my shop': For service 'db': x`},
		`For application 'my shop': Cannot update this process while a deployment`: {2, `For application 'my shop': Cannot update this process while a deployment`},
		`For application 'other': x`:                                               {0, `For application 'other': x`},
		"anything else":                                                            {0, "anything else"},
	} {
		if line, rest := m.Locate(text); line != want.line || rest != want.rest {
			t.Errorf("%s: line %d, %q, want %d, %q", text, line, rest, want.line, want.rest)
		}
	}
	e := ManifestError{App: "a", Key: "memory", Line: 3, Message: "m"}
	if got := e.In("manifest.yml"); got != `manifest.yml:3: app "a": memory: m` || e.Line != 3 {
		t.Errorf("in its file it is %s", got)
	}
}

// What is read of any error says the same.
func FuzzReadManifestError(f *testing.F) {
	f.Add("my \"shop\"", "sidecars[config server].memory", 3, "must be: m")
	f.Add("", "", 1, "x")
	f.Add("a\xff", "<<", 0, ": ")
	m, _, err := ParseManifest([]byte(located), sized)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name, key string, line int, message string) {
		e := ManifestError{App: name, Key: key, Line: line, Message: message}
		m.Locate(e.Error())
		got, ok := ReadManifestError(e.Error())
		if !ok {
			return // it names neither app nor line, or the text looks otherwise by chance
		}
		if got.Error() != e.Error() {
			t.Errorf("%q is read as %q", e.Error(), got.Error())
		}
	})
}

// The only app of a manifest gets the name that it does not have.
func TestParseNamedManifest(t *testing.T) {
	for text, want := range map[string]string{
		"applications: [{memory: 64M}]":                     "shop",
		"applications: [{name: null, memory: 64M}]":         "shop",
		"applications: [{name: own}]":                       "own",
		"a: &a {memory: 64M}\napplications:\n- {<<: *a}\n":  "shop",
		"applications: [{memory: 64M}, {name: b}]":          "",
		"applications: [x]":                                 "",
		"applications: {}":                                  "",
		"- x":                                               "",
		"applications:\n- nam: x\n  memory: 64M\n  env: {}": "shop",
	} {
		m, _, err := ParseNamedManifest([]byte(text), nil, "shop")
		switch {
		case want == "" && err == nil:
			t.Errorf("%s is accepted", text)
		case want != "" && (err != nil || len(m.Applications) != 1 || m.Applications[0].Name != want):
			t.Errorf("%s gives %+v, %v, want the name %s", text, m.Applications, err, want)
		}
	}
}
