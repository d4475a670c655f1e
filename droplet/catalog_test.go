package droplet

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
)

func newCatalog(t *testing.T, dir string) *Catalog {
	t.Helper()
	c, err := NewCatalog(openDB(t, filepath.Join(dir, "dew.db")), CatalogOptions{Packages: PackageOptions{Dir: filepath.Join(dir, "buildpacks")}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func packNames(t *testing.T, c *Catalog) string {
	t.Helper()
	all, err := c.All()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, b := range all {
		if b.Position != i+1 {
			t.Errorf("%s is at %d, want %d", b.Name, b.Position, i+1)
		}
		names = append(names, strings.TrimSuffix(b.Name, "_buildpack"))
	}
	return strings.Join(names, " ")
}

func uploadPack(t *testing.T, c *Catalog, guid string, ms ...member) (Buildpack, error) {
	t.Helper()
	z := zipOf(t, ms...)
	return c.Upload(t.Context(), guid, "my.zip", bytes.NewReader(z), int64(len(z)))
}

func TestCatalogKeepsAnOrder(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	if got := packNames(t, c); got != "staticfile java ruby nodejs go python php nginx binary" {
		t.Errorf("at first: %s", got)
	}
	mine, err := c.Create(Buildpack{Name: "mine", Position: 2, Enabled: true})
	if err != nil || mine.Position != 2 || mine.State != BuildpackAwaiting || mine.BuiltIn {
		t.Fatalf("created %+v, %v", mine, err)
	}
	if _, err := c.Create(Buildpack{Name: "mine"}); !errors.Is(err, ErrBuildpackTaken) {
		t.Errorf("the same name again: %v", err)
	}
	if _, err := c.Create(Buildpack{Name: "mine", Stack: "cflinuxfs4", Position: 99}); err != nil {
		t.Errorf("the same name on another stack: %v", err)
	}
	if got := packNames(t, c); got != "staticfile mine java ruby nodejs go python php nginx binary mine" {
		t.Errorf("after two more: %s", got)
	}
	for at, want := range map[int]string{1: "mine staticfile java ruby nodejs go python php nginx binary mine", 10: "staticfile java ruby nodejs go python php nginx binary mine mine", 0: "staticfile java ruby nodejs go python php nginx binary mine mine"} {
		if _, err := c.Update(mine.GUID, func(b *Buildpack) error { b.Position = at; return nil }); err != nil {
			t.Error(err)
		}
		if got := packNames(t, c); got != want {
			t.Errorf("moved to %d: %s, want %s", at, got, want)
		}
	}
	if err := c.Delete(mine.GUID); err != nil {
		t.Error(err)
	}
	if got := packNames(t, c); got != "staticfile java ruby nodejs go python php nginx binary mine" {
		t.Errorf("after a deletion: %s", got)
	}
	if _, err := c.Get(mine.GUID); !errors.Is(err, ErrNotFound) {
		t.Errorf("what was deleted: %v", err)
	}
	if err := c.Delete(Buildpacks()[0].GUID); !errors.Is(err, ErrBuildpackOwn) {
		t.Errorf("deleting a built-in one: %v", err)
	}
	var bad *app.Invalid
	for _, b := range []Buildpack{{}, {Name: "a/b"}, {Name: "git://x"}, {Name: "x", Stack: "windows"}, {Name: strings.Repeat("x", 256)}} {
		if _, err := c.Create(b); !errors.As(err, &bad) {
			t.Errorf("%+v: %v, want it refused", b, err)
		}
	}
}

func TestCatalogTakesUploads(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	mine, err := c.Create(Buildpack{Name: "mine", Enabled: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.choose([]string{"mine"}, stack.Stack{}, nil); err == nil || !strings.Contains(err.Error(), "not uploaded yet") {
		t.Errorf("before its bits came: %v", err)
	}
	var bad *pool.Error
	for name, ms := range map[string][]member{
		"no scripts": {{name: "README", text: "x"}},
		"slip":       {{name: "../bin/detect", text: "x"}},
	} {
		if _, err := uploadPack(t, c, mine.GUID, ms...); !errors.As(err, &bad) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	b, err := uploadPack(t, c, mine.GUID, member{name: "mine-1.0/bin/detect", text: "#!/bin/sh\n"}, member{name: "mine-1.0/bin/compile", text: "1"})
	if err != nil || b.State != BuildpackReady || b.Filename != "my.zip" || b.SHA256 == "" {
		t.Fatalf("uploaded %+v, %v", b, err)
	}
	first := b.SHA256
	got, err := c.choose([]string{"mine"}, stack.Stack{}, nil)
	if err != nil || len(got) != 1 || got[0].key != first || got[0].custom || got[0].strip != pool.Top {
		t.Fatalf("chosen %+v, %v", got, err)
	}
	r, err := got[0].open()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = uploadPack(t, c, mine.GUID, member{name: "bin/compile", text: "2"}); err != nil || b.SHA256 == first {
		t.Errorf("uploaded again: %+v, %v", b, err)
	}
	if raw, err := io.ReadAll(r); err != nil || !bytes.Contains(raw, []byte("mine-1.0")) {
		t.Errorf("what is being read was taken away: %v", err)
	}
	r.Close()
	if _, err := c.Update(mine.GUID, func(b *Buildpack) error { b.Enabled, b.Locked = false, true; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := uploadPack(t, c, mine.GUID, member{name: "bin/compile", text: "3"}); !errors.Is(err, ErrBuildpackLocked) {
		t.Errorf("uploaded to a locked one: %v", err)
	}
	if _, err := c.choose([]string{"mine"}, stack.Stack{}, nil); err == nil || !strings.Contains(err.Error(), "disabled") {
		t.Errorf("a disabled one: %v", err)
	}
	if err := c.Delete(mine.GUID); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(c.o.Dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A catalog is the same after a restart. A new daemon adds its new built-in buildpacks.
func TestCatalogSurvives(t *testing.T) {
	dir := t.TempDir()
	c := newCatalog(t, dir)
	java := Buildpacks()[0].GUID
	if _, err := c.Update(java, func(b *Buildpack) error { b.Enabled, b.Position = false, 3; return nil }); err != nil {
		t.Fatal(err)
	}
	again, err := NewCatalog(c.db, CatalogOptions{Packages: PackageOptions{Dir: filepath.Join(dir, "buildpacks")}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := again.Get(java); err != nil || b.Enabled || b.Position != 3 {
		t.Errorf("java = %+v, %v", b, err)
	}
}

// Deleting the uploaded version of a built-in buildpack restores the original.
func TestBuiltInBuildpackIsRestored(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	guid := Buildpacks()[4].GUID
	was, err := c.choose([]string{GoBuildpack}, stack.Stack{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Update(guid, func(b *Buildpack) error { b.Locked, b.Position, b.Enabled = false, 1, true; return nil }); err != nil {
		t.Fatal(err)
	}
	if b, err := uploadPack(t, c, guid, member{name: "bin/compile", text: "x"}); err != nil || b.SHA256 == "" {
		t.Fatalf("uploaded %+v, %v", b, err)
	}
	if got, err := c.choose([]string{GoBuildpack}, stack.Stack{}, nil); err != nil || got[0].key == was[0].key {
		t.Fatalf("chosen %+v, %v, want the upload", got, err)
	}
	if err := c.Delete(guid); err != nil {
		t.Fatal(err)
	}
	b, err := c.Get(guid)
	if err != nil || b.SHA256 != "" || b.Filename != "" || !b.Locked || b.Position != 1 || b.State != BuildpackReady {
		t.Errorf("restored %+v, %v", b, err)
	}
	if got, err := c.choose([]string{GoBuildpack}, stack.Stack{}, nil); err != nil || got[0].key != was[0].key {
		t.Errorf("chosen %+v, %v, want what came with dew", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(c.o.Dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := c.Delete(guid); !errors.Is(err, ErrBuildpackOwn) {
		t.Errorf("deleted again: %v", err)
	}
}

func TestChoose(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	names := func(hs []chosen) (out []string) {
		for _, h := range hs {
			out = append(out, h.name)
		}
		return out
	}
	all, err := c.choose(nil, stack.Stack{Name: "host"}, nil)
	if err != nil || !slices.Equal(names(all), []string{"staticfile_buildpack", "java_buildpack", "ruby_buildpack", "nodejs_buildpack", "go_buildpack", "python_buildpack", "php_buildpack", "nginx_buildpack"}) {
		t.Errorf("tried: %v, %v", names(all), err)
	}
	if !all[1].java || all[0].java || onlyBinary(all) || keysOf(all) == "" {
		t.Errorf("tried: %+v", all)
	}
	one, err := c.choose([]string{"binary"}, stack.Stack{}, nil)
	if err != nil || !onlyBinary(one) {
		t.Errorf("binary: %+v, %v", one, err)
	}
	several, err := c.choose([]string{"go", "https://me:secret@example.com/b#v1", "binary_buildpack"}, stack.Stack{}, nil)
	if err != nil || !slices.Equal(names(several), []string{"go_buildpack", "https://me:xxxxx@example.com/b#v1", "binary_buildpack"}) {
		t.Errorf("several: %v, %v", names(several), err)
	}
	if onlyBinary(several) || keysOf(several) != "" || !several[1].custom {
		t.Errorf("several: %+v, want nobody to know what they give", several)
	}
}

func TestChooseFolder(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), mode), os.Chmod(p, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/detect", "#!/bin/sh\n", 0o755)
	write(".git/config", "secret", 0o600)
	for up := dir; up != "/"; up = filepath.Dir(up) {
		if fi, err := os.Stat(up); err != nil || fi.Mode()&0o001 == 0 {
			t.Skipf("not all users can enter %s", up)
		}
	}
	first, err := c.choose([]string{dir}, stack.Stack{}, nil)
	if err != nil || !first[0].custom || first[0].key == "" {
		t.Fatalf("chosen %+v, %v", first, err)
	}
	r, err := first[0].open()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(raw, []byte("bin/detect")) || bytes.Contains(raw, []byte("secret")) {
		t.Errorf("packed %d bytes, %v, want the script and nothing of git", len(raw), err)
	}
	write("bin/compile", "x", 0o755)
	if second, err := c.choose([]string{dir}, stack.Stack{}, nil); err != nil || second[0].key == first[0].key {
		t.Errorf("another file: %+v, %v, want another key", second, err)
	}
	write("bin/private", "x", 0o600)
	var bad *BuildpackError
	if _, err := c.choose([]string{dir}, stack.Stack{}, nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), "bin/private in the folder is not readable for all users") {
		t.Errorf("a private file: %v", err)
	}
	if _, err := c.choose([]string{"/nowhere/at/all"}, stack.Stack{}, nil); !errors.As(err, &bad) {
		t.Errorf("no folder: %v", err)
	}
}

// A built-in buildpack cannot be renamed. An upload without scripts is refused, because
// it would fail every staging that needs detection.
func TestBuiltInBuildpacksKeepTheirNames(t *testing.T) {
	c := newCatalog(t, t.TempDir())
	guid := Buildpacks()[0].GUID
	_, err := c.Update(guid, func(b *Buildpack) error { b.Name = "coffee"; return nil })
	if !errors.Is(err, ErrBuildpackName) {
		t.Errorf("renamed: %v", err)
	}
	if _, err := c.Update(guid, func(b *Buildpack) error { b.Enabled = false; return nil }); err != nil {
		t.Error(err)
	}
	mine, err := c.Create(Buildpack{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := uploadPack(t, c, mine.GUID, member{name: "scripts/detect", text: "#!/bin/sh\n"}, member{name: "x/y/detect", text: "x"}); err == nil {
		t.Error("scripts that are not in bin were taken")
	}
	if _, err := uploadPack(t, c, mine.GUID, member{name: "pack-1.0/bin/detect", text: "#!/bin/sh\n"}); err != nil {
		t.Error(err)
	}
}
