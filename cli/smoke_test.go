package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/smoketest"
	"github.com/dewrun/dew/smoke"
)

// smokeFolder creates a folder to test, and changes into it.
func smokeFolder(t *testing.T, spec string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shop")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"manifest.yml": "applications: [{name: shop}]\n", "smoke.yml": spec, "index.html": "hello"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// Mistakes are reported before dew connects to a daemon.
func TestSmokeMistakes(t *testing.T) {
	clearHome(t)
	smokeFolder(t, "chekcs: []\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "smoke.yml, line 1: chekcs: is not a known key: did you mean checks?"},
		{[]string{"nowhere", "elsewhere"}, "cannot find the folder or manifest to test"},
		{[]string{"--timeout", "-1s"}, "--timeout: -1s is less than 0"},
		{[]string{"--bundle", "x", "--no-bundle"}, "--bundle and --no-bundle cannot be used together"},
		{[]string{"--watch", "--keep"}, "--watch and --keep cannot be used together"},
		{[]string{"--force"}, "--force needs dew smoke init"},
		{[]string{"init", "a", "b"}, "smoke init takes one folder"},
		{[]string{"init"}, "smoke.yml already exists"},
		{[]string{"manifest.yml", "--var", "x"}, "chekcs"},
	} {
		r := runDew(t.Context(), append([]string{"smoke"}, tt.args...)...)
		r.must(t, console.StatusUsage, tt.want)
	}
	r := runDew(t.Context(), "smoke", "init", "--force")
	r.must(t, 0, "Wrote smoke.yml")
	r = runDew(t.Context(), "--run", t.TempDir(), "smoke")
	r.must(t, console.StatusUnreachable, "cannot connect to dewd")
}

// A folder is pushed with the code of dew push, into its own org and space.
func TestSmokeVerbs(t *testing.T) {
	d := newDaemon(t)
	smokeFolder(t, "")
	out := quiet()
	g := &command.Set{Run: d.run, Out: out, Local: true}
	verbs, err := smoketest.Open(t.Context(), g, smoketest.Options{Quiet: true})
	if err != nil || verbs.Private != nil {
		t.Fatalf("verbs = %+v, %v", verbs, err)
	}
	in, err := verbs.Connect(t.Context(), smoke.TestSpace{Org: "smoke-1", OrgGUID: "org-1", Space: "smoke", SpaceGUID: "space-1"})
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Commands.Push(t.Context(), smoke.Push{Manifest: "manifest.yml", Dir: here}); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.sent["index.html"]; !ok || d.app == nil {
		t.Errorf("sent %v, app %v", d.sent, d.app)
	}
	var view strings.Builder
	if err := in.Commands.Show(t.Context(), "shop", &view); err != nil || !strings.Contains(view.String(), "shop") {
		t.Errorf("view = %q, %v", view.String(), err)
	}
	env := strings.Join(in.Env, "\n")
	for _, want := range []string{"\nDEW_RUN=" + d.run, "\nSMOKE_ORG=smoke-1", "\nSMOKE_SPACE=smoke", "\nDEW_HOME="} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment lacks %q", want)
		}
	}
	_, home, _ := strings.Cut(env, "\nDEW_HOME="+os.TempDir())
	home, _, _ = strings.Cut(home, "\n")
	home = os.TempDir() + home
	c, err := command.ConfigFile{Path: filepath.Join(home, ".dew", "config.json")}.Load()
	if err != nil || c.Local[d.run].SpaceGUID != "space-1" {
		t.Errorf("dew remembers %+v, %v", c, err)
	}
	in.Close()
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", home, err)
	}
}
