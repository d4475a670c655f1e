package droplet

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dewrun/dew/droplet/stack"
)

// The buildpack contains the file server in its present version. Without the program,
// the buildpack has only scripts, which report that it is missing.
func TestProgramsInBuildpacks(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	dir := t.TempDir()
	read := func() (key, program string, names int) {
		t.Helper()
		got, err := c.choose([]string{StaticBuildpack}, stack.Stack{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := got[0].open()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for tr := tar.NewReader(r); ; names++ {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				return got[0].key, program, names
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Name == "bin/"+staticProgram {
				b, err := io.ReadAll(tr)
				if program = string(b); err != nil || h.Mode != 0o755 {
					t.Errorf("mode %o, %v", h.Mode, err)
				}
			}
		}
	}
	bare, program, names := read()
	if program != "" || names == 0 {
		t.Errorf("without a folder: %q, %d entries", program, names)
	}
	c.tools.Dir = dir
	if key, program, _ := read(); program != "" || key != bare {
		t.Errorf("without the program: %q, key %s", program, key)
	}
	file := filepath.Join(dir, staticProgram)
	keys := map[string]bool{bare: true}
	for i, text := range []string{"one", "two"} {
		at := time.Unix(int64(1000+i), 0)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o755), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
		key, program, n := read()
		if program != text || keys[key] || n != names+1 {
			t.Errorf("program %q, %d entries, key %s, want %q and another key", program, n, key, text)
		}
		if again, _, _ := read(); again != key {
			t.Errorf("keys of the same: %s, %s", key, again)
		}
		keys[key] = true
	}
}

// A change of dew-buildpack changes the keys of the buildpacks that use it. A build with
// one of them gets the program once.
func TestHelperProgram(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		builder := &fakeBuilder{}
		y.withBuilder(builder)
		c := y.builds.o.Catalog
		c.tools.Dir = t.TempDir()
		keys := func() string {
			t.Helper()
			packs, err := c.choose([]string{NodeBuildpack, RubyBuildpack}, stack.Stack{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return keysOf(packs)
		}
		bare := keys()
		if err := os.WriteFile(filepath.Join(c.tools.Dir, helperProgram), []byte("program"), 0o755); err != nil {
			t.Fatal(err)
		}
		if with := keys(); with == bare {
			t.Errorf("the keys stay %s", with)
		}
		for _, packs := range [][]string{nil, {NodeBuildpack, RubyBuildpack}} {
			chosen, err := c.choose(packs, stack.Stack{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			layers := helperLayers(chosen)
			if len(layers) != 1 || layers[0].Path != "/tmp/buildpacks" {
				t.Fatalf("layers %+v, want one", layers)
			}
			r, err := layers[0].Open()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			untar(t, dir, r)
			if text, err := os.ReadFile(filepath.Join(dir, helperProgram)); err != nil || string(text) != "program" {
				t.Errorf("program %q, %v", text, err)
			}
		}
		if only, err := c.choose([]string{StaticBuildpack}, stack.Stack{}, nil); err != nil || len(helperLayers(only)) != 0 {
			t.Errorf("a static site gets %d layers, %v", len(helperLayers(only)), err)
		}
	})
}
