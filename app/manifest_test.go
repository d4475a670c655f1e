package app

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dewrun/dew/yamlfile"
)

var update = flag.Bool("update", false, "write the golden files again")

const goldenLine = "----------\n"

// goldenVars are the variables that golden manifests can use.
var goldenVars = map[string]any{
	"name": "shop", "instances": int64(3), "memory": "128M", "truth": true, "ratio": 1.5,
	"types": []any{"web", "worker"}, "db": map[string]any{"host": "db.example.com", "port": int64(5432)},
	"literal": "((name))",
}

// outcome returns the result of ParseManifest as text.
func outcome(text string) string {
	m, warnings, err := ParseManifest([]byte(text), goldenVars)
	var out strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&out, "warning: %s\n", w)
	}
	if err != nil {
		problems := ManifestProblems(err)
		for _, p := range problems {
			fmt.Fprintf(&out, "error: %v\n", p)
		}
		if len(problems) == 0 {
			fmt.Fprintf(&out, "unexpected error: %v\n", err)
		}
		return out.String()
	}
	apps := []yaml.MapSlice{}
	for i := range m.Applications {
		apps = append(apps, m.Applications[i].rendered())
	}
	b, err := yaml.Marshal(apps)
	if err != nil {
		return err.Error()
	}
	return out.String() + string(b)
}

// Each golden file is a manifest, a line of dashes, and its expected result or errors.
func TestManifestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/manifest/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("golden files = %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, want, _ := strings.Cut(string(one[[]byte](t)(os.ReadFile(file))), goldenLine)
			got := outcome(text)
			if *update {
				must(t, os.WriteFile(file, []byte(text+goldenLine+got), 0o644))
				return
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("outcome (-got +want):\n%s", diff)
			}
		})
	}
}

// checkRoundTrip checks that a manifest is the same after it is written for the daemon
// and read again.
func checkRoundTrip(t *testing.T, m Manifest) {
	t.Helper()
	b := one[[]byte](t)(m.YAML())
	again, warnings, err := ParseManifest(b, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%s\nread again: %v, warnings %v", b, err, warnings)
	}
	// depends-on is not sent.
	if diff := cmp.Diff(again, m, cmpopts.IgnoreUnexported(ManifestApp{}), cmpopts.IgnoreFields(ManifestApp{}, "DependsOn"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s\nread again (-got +want):\n%s", b, diff)
	}
}

func goldenTexts(tb testing.TB) []string {
	files, err := filepath.Glob("testdata/manifest/*.txt")
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		text, _, _ := strings.Cut(string(b), goldenLine)
		out = append(out, text)
	}
	return out
}

// Any text is a manifest or a list of ManifestErrors with a message each, never a
// panic. A manifest is the same after it was sent. It can be applied twice or not at
// all.
func FuzzParseManifest(f *testing.F) {
	for _, text := range goldenTexts(f) {
		f.Add([]byte(text))
	}
	f.Add([]byte("a: &a [x]\nb: &b [*a, *a]\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Add([]byte("applications: [{name: a, env: {A: .inf, B: 0x1F, C: !!str 1, D: 1e400}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, _, err := ParseManifest(text, goldenVars)
		if err == nil {
			if len(m.Applications) == 0 {
				t.Error("no error and no app")
			}
			checkRoundTrip(t, m)
			checkOrder(t, m)
			return
		}
		problems := ManifestProblems(err)
		if len(problems) == 0 {
			t.Errorf("error = %v, want ManifestErrors", err)
		}
		for _, p := range problems {
			if p.Message == "" || p.Line < 0 {
				t.Errorf("error = %+v, want a message", p)
			}
		}
	})
}

// Variables of any text are read or refused, and the read values can be used in a
// manifest.
func FuzzParseVariables(f *testing.F) {
	f.Add([]byte("a: 1\nb: [x, {y: z}]\nc: null\n"))
	f.Add([]byte("- a"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		vars, err := ParseVariables(text)
		if err != nil {
			return
		}
		for name := range vars {
			if !yamlfile.IsVariable(name) {
				continue
			}
			_, _, err := ParseManifest([]byte("applications: [{name: shop, env: {A: (("+name+"))}}]"), vars)
			if err != nil && len(ManifestProblems(err)) == 0 {
				t.Errorf("variable %q: %v", name, err)
			}
		}
	})
}

func TestManifestRoundTrip(t *testing.T) {
	good := 0
	for _, text := range goldenTexts(t) {
		m, _, err := ParseManifest([]byte(text), goldenVars)
		if err == nil {
			checkRoundTrip(t, m)
			good++
		}
	}
	if good < 5 {
		t.Errorf("%d golden files are good manifests, want some", good)
	}
}

// The manifest that is sent keeps texts that unquoted YAML would read as another type.
func TestManifestKeepsText(t *testing.T) {
	env := map[string]*string{}
	for i, s := range []string{
		"", " ", "a", "1", "01", "0x1f", "1e3", ".5", "~", "null", "true", "yes", "no", "- a", "a: b", "#x", "&a", "*a", "!a", "%a", "@a", "`a", "'", `"`, `\`, "a\nb",
		"\n", " a ", "\ttab", "ü😀", "\u2028", "\x7f", "\x1b", "{", "[", "|", ">", "?", "<<", "=", "\r\n", "a #b", "2020-01-01", "1:30", "\ufeff", "..", "---", "<&>",
	} {
		env[fmt.Sprintf("V%d", i)] = &s
	}
	checkRoundTrip(t, Manifest{Applications: []ManifestApp{{Name: "1", Env: env, Buildpacks: []string{}}}})
}

func TestManifestBounds(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	merges := "a: &a {"
	for i := range 1000 {
		merges += fmt.Sprintf("k%d: 1, ", i)
	}
	merges += "}\nb:\n" + strings.Repeat("- {<<: *a}\n", 1000)
	for name, tt := range map[string]struct{ text, want string }{
		"size":    {strings.Repeat("x", yamlfile.MaxBytes+1), "at most 1048576"},
		"laughs":  {laughs, "anchors are expanded"},
		"merges":  {merges, "anchors are expanded"},
		"lists":   {strings.Repeat("[", 5_000), "too deep"},
		"maps":    {strings.Repeat("{a: ", 5_000), "too deep"},
		"dashes":  {strings.Repeat("- ", 5_000), "too deep"},
		"keys":    {strings.Repeat("? ", 5_000), "too deep"},
		"colons":  {strings.Repeat("a: ", 5_000), "too deep"},
		"anchors": {strings.Repeat("&a ", 5_000), "too deep"},
		"tags":    {strings.Repeat("!!str ", 5_000), "too deep"},
		"cycle":   {"a: &a [*a]\n", "has no anchor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseManifest([]byte(tt.text), nil)
			if len(ManifestProblems(err)) != 1 || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

// A large manifest can be parsed.
func TestManifestLarge(t *testing.T) {
	text := "applications:\n"
	for i := range 100 {
		text += fmt.Sprintf("- name: app-%d\n  env: {A: '1', B: '2', C: '3'}\n  sidecars:\n  - {name: s, command: ./s, process_types: [web], memory: 8M}\n", i)
	}
	m, _, err := ParseManifest([]byte(text), nil)
	if err != nil || len(m.Applications) != 100 {
		t.Fatalf("apps = %d, %v", len(m.Applications), err)
	}
	checkRoundTrip(t, m)
}

func TestManifestErrorText(t *testing.T) {
	for want, e := range map[string]ManifestError{
		`app "shop", line 3: memory: m`: {App: "shop", Key: "memory", Line: 3, Message: "m"},
		`line 3: m`:                     {Line: 3, Message: "m"},
		`app "shop": memory: m`:         {App: "shop", Key: "memory", Message: "m"},
		`m`:                             {Message: "m"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("error = %s, want %s", got, want)
		}
	}
	a, b := &ManifestError{Key: "a"}, &ManifestError{Key: "b"}
	err := fmt.Errorf("cannot apply: %w", errors.Join(a, fmt.Errorf("more: %w", errors.Join(errors.New("x"), b))))
	if diff := cmp.Diff(ManifestProblems(err), []*ManifestError{a, b}); diff != "" {
		t.Errorf("problems (-got +want):\n%s", diff)
	}
}

func TestManifestWeb(t *testing.T) {
	m := ManifestApp{Name: "shop"}
	if m.Web() != &m.ManifestProcess {
		t.Error("without an entry the keys of web are at app level")
	}
	m.Processes = []ManifestProcess{{Type: "worker"}, {Type: Web}}
	if m.Web() != &m.Processes[1] {
		t.Error("the keys of web are in its entry")
	}
}

// The sender of a manifest has already replaced its variables, so ((name)) in it is
// plain text. In a user's file, ((name)) is a variable, even if none are given.
func TestManifestVariablesOnce(t *testing.T) {
	const text = "applications: [{name: shop, command: ./a ((b))}]"
	m, _, err := ParseManifest([]byte(text), nil)
	if err != nil || *m.Applications[0].Command != "./a ((b))" {
		t.Errorf("manifest = %+v, %v, want the text as it is", m, err)
	}
	if _, _, err := ParseManifest([]byte(text), map[string]any{}); len(ManifestProblems(err)) != 1 || !strings.Contains(err.Error(), "((b)) in line 1") {
		t.Errorf("error = %v, want the variable", err)
	}
}

func TestParseVariable(t *testing.T) {
	for s, want := range map[string]any{
		"a=1": int64(1), "a=x": "x", "a=": nil, "a=x=y": "x=y", "a='1'": "1", "a=[x, 2]": []any{"x", int64(2)}, "a-b/c.d=true": true,
	} {
		_, got, err := ParseVariable(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%q (-got +want):\n%s", s, diff)
		}
	}
	for _, s := range []string{"", "a", "=1", "a b=1", "a=["} {
		if name, v, err := ParseVariable(s); err == nil {
			t.Errorf("%q = %q, %v, want an error", s, name, v)
		}
	}
	if _, err := ParseVariables([]byte("- a")); err == nil || !strings.Contains(err.Error(), "map of names") {
		t.Errorf("error = %v, want what a file of variables is", err)
	}
	if vars, err := ParseVariables(nil); err != nil || vars == nil || len(vars) != 0 {
		t.Errorf("empty file = %v, %v, want an empty map", vars, err)
	}
}

// A manifest that is not UTF-8 is refused with the line. Replacing its bytes would give
// another name.
func TestManifestMustBeUTF8(t *testing.T) {
	for text, want := range map[string]string{
		"applications:\n- name: caf\xe9\n":                                              "line 2: the text is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"\xed\xa0\x80\"\n":                "line 4: the text is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"a\\ud800b\"\n":                   "line 4: the text is not YAML: not enough length for escaped UTF-16 surrogate pair",
		"applications:\n- name: shop\n  env:\n    \"\\uDC00\": b\n":                     "line 4: the text is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"\ufffd \\ufffd\"\n":              "",
		"applications:\n- name: shop\n  env:\n    A: '\\ud800'\n":                       "", // single quotes allow no escapes
		"applications:\n- name: shop\n  env:\n    A: \\ud800\n":                         "",
		"applications:\n- name: shop\n  env:\n    A: \"caf\u00e9 \\u20ac\"\n":           "",
		"applications:\n- name: shop\n  env:\n    A: \"\\ufffd\"\n    B: \"\\udfff\"\n": "line 5: the text is not valid UTF-8",
		"applications:\n- name: shop\n  env:\n    A: \"\\ud83d\\ude00\"\n":              "",
	} {
		_, _, err := ParseManifest([]byte(text), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

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

// Locate finds the line in the user's file for an error of the daemon, which has not
// seen that file.
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

// An error that is read from its text has the same text.
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
			return // it names neither app nor line, or has another meaning by chance
		}
		if got.Error() != e.Error() {
			t.Errorf("%q is read as %q", e.Error(), got.Error())
		}
	})
}

// The only app of a manifest gets the given name if it has none.
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
