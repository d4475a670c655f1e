package smoke

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write creates files in a new folder and returns the folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	dir := write(t, map[string]string{
		"plain/manifest.yml": "x", "plain/other.yml": "x",
		"a/manifest.yml": "x", "a/smoke.yml": "checks: [{http: GET /}]", "a/second.yml": "x",
		"b/manifest.yml": "x", "b/smoke.yml": "alone: true",
		"c/deep/one.yml": "x", "c/deep/two.yml": "x", "c/deep/smoke.yml": "manifests: [one.yml, two.yml]\nbuild: make\nchecks: [{http: GET /}]",
		".hidden/smoke.yml": "broken: [",
	})
	t.Chdir(dir)
	for _, tt := range []struct {
		args []string
		want string // folder:number of manifests:number of checks
	}{
		{[]string{"./..."}, "a:1:1 c/deep:2:1"},
		{[]string{"..."}, "a:1:1 c/deep:2:1"},
		{[]string{"c/..."}, "c/deep:2:1"},
		{[]string{"plain"}, "plain:1:0"},
		{[]string{"b"}, "b:1:0"},
		{[]string{"a", "./...", "a/"}, "a:1:1 c/deep:2:1"},
		{[]string{"plain/other.yml"}, "plain/other.yml:1:0"},
		{[]string{"a/second.yml"}, "a/second.yml:1:1"},
		{[]string{"c/deep/one.yml"}, "c/deep/one.yml:1:0"}, // the checks are for two manifests
	} {
		all, err := Find(tt.args)
		if err != nil {
			t.Errorf("%q: %v", tt.args, err)
			continue
		}
		var got []string
		for _, f := range all {
			got = append(got, f.Name+":"+string(rune('0'+len(f.Manifests)))+":"+string(rune('0'+len(f.Spec.Checks))))
			if !filepath.IsAbs(f.Dir) || !filepath.IsAbs(f.Manifests[0]) {
				t.Errorf("%q: folder %+v is not absolute", tt.args, f)
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%q found %s, want %s", tt.args, s, tt.want)
		}
	}
}

func TestFindHere(t *testing.T) {
	dir := write(t, map[string]string{"shop/manifest.yml": "x"})
	t.Chdir(filepath.Join(dir, "shop"))
	all, err := Find(nil)
	if err != nil || len(all) != 1 || all[0].Name != "shop" {
		t.Errorf("found %+v, %v", all, err)
	}
}

func TestFindMistakes(t *testing.T) {
	dir := write(t, map[string]string{
		"empty/x": "", "bad/smoke.yml": "x: y", "lost/smoke.yml": "manifests: [gone.yml]", "alone/smoke.yml": "alone: true\n", "alone/manifest.yml": "",
	})
	t.Chdir(dir)
	for arg, want := range map[string]string{
		"nowhere": "cannot find the folder or manifest to test", "empty": "cannot find the manifest", "bad": "bad/smoke.yml, line 1: x", "lost": "cannot find the manifest",
		"alone/...": "no smoke.yml found under alone", "bad/...": "bad/smoke.yml, line 1: x", "nowhere/...": "cannot search nowhere",
	} {
		_, err := Find([]string{arg})
		f := (*Failure)(nil)
		if !errors.As(err, &f) || f.Status != StatusUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q with status %d", arg, err, want, StatusUsage)
		}
	}
}
