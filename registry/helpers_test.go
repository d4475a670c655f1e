package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// one returns the value and stops the test on an error.
func one[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keys returns the keys that err reports.
func keys(err error) []string {
	var out []string
	for _, p := range app.Problems(err) {
		out = append(out, p.Key)
	}
	return out
}

// goldenVars are the variables that golden manifests can use.
var goldenVars = map[string]any{
	"name": "shop", "instances": int64(3), "memory": "128M", "truth": true, "ratio": 1.5,
	"types": []any{"web", "worker"}, "db": map[string]any{"host": "db.example.com", "port": int64(5432)},
	"literal": "((name))",
}

func parse(t *testing.T, text string) app.Manifest {
	t.Helper()
	m, _, err := app.ParseManifest([]byte(text), goldenVars)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}

// goldenTexts returns the manifests that the tests of package app read.
func goldenTexts(tb testing.TB) []string {
	files, err := filepath.Glob("../app/testdata/manifest/*.txt")
	if err != nil || len(files) == 0 {
		tb.Fatalf("%d golden manifests: %v", len(files), err)
	}
	var out []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		text, _, _ := strings.Cut(string(b), "----------\n")
		out = append(out, text)
	}
	return out
}

// oddTexts are strings that YAML would read as another type if they were not quoted.
var oddTexts = []string{
	"", " ", "a", "yes", "NO", "~", "null", "1", "1e3", "0x1F", "1.5", ".inf", "- a", "? a", "a: b", "a #b", "#a", "'", `"`, `\`, "*a", "&a", "!a",
	"%a", "@a", "`a", "{", "[", "|", ">", "a\nb", "a\n\nb\n", "\ta", "a ", " a", "ü", "𝄞", "\u2028", "\u0085", "a\\nb", "((a))", "2026-01-01", "<<", "=", "a,b", "64M", "\x7f", "\ufeff",
}

func second[T any](_ T, err error) error { return err }

func openDB(t *testing.T) *store.DB {
	t.Helper()
	return testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true}))(t)
}

func newRegistry(t *testing.T) *Registry {
	t.Helper()
	return New(openDB(t))
}

// shop is a started app with a web and a worker process and two sidecars.
func shop(t *testing.T, r *Registry) app.App {
	t.Helper()
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1", State: app.Started, Env: map[string]string{"A": "1"}}))
	one[app.Process](t)(r.PutProcess(app.Process{App: a.GUID, Type: "worker", Instances: 2, MemoryMB: 256}))
	one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "config server", Command: "./config", ProcessTypes: []string{"web"}, MemoryMB: 64}))
	one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "agent", Command: "./agent", ProcessTypes: []string{"web", "worker"}, MemoryMB: 32}))
	return a
}

// versions returns the version of each process type.
func versions(t *testing.T, r *Registry, a app.App) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range one[[]app.Process](t)(r.Processes(a.GUID)) {
		out[p.Type] = p.Version
		if len(p.Current) == 0 || p.Current[len(p.Current)-1] != p.Version || !p.Keeps(p.Version) {
			t.Errorf("%s: current = %v, want the version %s last", p.Type, p.Current, p.Version)
		}
	}
	return out
}
