package smoke

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// A failure writes a bundle with all data, and without secrets.
func TestBundle(t *testing.T) {
	c := newCloud(t)
	c.lines = []v3.Line{{Source: "APP/PROC/WEB", Stream: "ERR", Text: []byte("the password is very-secret")}}
	r, _ := tried(t, c, &fakeCommands{c: c}, "checks: [{run: exit 1}]")
	files := unpack(t, r.Folders[0].Bundle)
	for name, want := range map[string]string{
		"kept/report.json": `"status": 8`, "kept/manifest-1.yml": "((name))", "kept/apps/shop/env.json": `"PASSWORD": "***"`,
		"kept/apps/shop/log.txt": "[APP/PROC/WEB/0] ERR the password is ***", "kept/apps/shop/events.json": "app.crash",
		"kept/apps/shop/crashes.json": "", "kept/apps/shop/app.txt": "password: ***", "kept/status.json": "dew.localhost",
	} {
		if text, ok := files[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("%s = %q, want one with %q", name, text, want)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "very-secret") {
			t.Errorf("%s tells the secret: %s", name, text)
		}
	}
	if info, err := os.Stat(r.Folders[0].Bundle); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("bundle: %v, %v", info, err)
	}
}

// The report for CI servers has no secrets either: neither in the lines of apps, nor in
// the output of a script.
func TestJUnitHidesSecrets(t *testing.T) {
	c := newCloud(t)
	c.lines = []v3.Line{{Source: "APP/PROC/WEB", Stream: "ERR", Text: []byte("the password is very-secret")}}
	r, _ := tried(t, c, &fakeCommands{c: c}, "checks: [{log: the password is}, {run: echo it is very-secret; exit 1}]")
	text := string(r.JUnit())
	if strings.Contains(text, "very-secret") || !strings.Contains(text, "ERR the password is ***") || !strings.Contains(text, "it is ***") {
		t.Errorf("report:\n%s", text)
	}
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(b)
	}
}

func TestBundleName(t *testing.T) {
	folder := Folder{Name: "examples/shop", Dir: filepath.FromSlash("/x/examples/shop")}
	manifest := Folder{Name: "examples/shop/man ifest.yml", Dir: filepath.FromSlash("/x/examples/shop")}
	for _, tt := range []struct {
		file   string
		f      Folder
		single bool
		want   string
	}{
		{"", folder, true, "smoke-shop.tar.gz"},
		{"", manifest, false, "smoke-shop-man_ifest.tar.gz"},
		{"out/b.tar.gz", folder, true, "out/b.tar.gz"},
		{"out/b.tar.gz", folder, false, "out/b-shop.tar.gz"},
	} {
		if got := BundleName(tt.file, tt.f, tt.single); got != tt.want {
			t.Errorf("%q became %q, want %q", tt.file, got, tt.want)
		}
	}
}
