package droplet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/archive"
)

// setBindings sets the service bindings of the apps.
func (y *testBuilds) setBindings(of map[string]Bindings) {
	y.builds.o.Bindings = func(app string) (Bindings, error) { return of[app], nil }
}

// A droplet keeps the service bindings of its build. The next build gets the present
// ones.
func TestBindingsAreFrozen(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{"/tmp/app/x": "x"}}
		y.withBuilder(f)
		old := Bindings{JSON: `{"postgres":[{"credentials":{"password":"one"}}]}`, Names: []string{"db"}}
		of := map[string]Bindings{"a": old}
		y.setBindings(of)
		y.run()
		r := BuildRequest{Package: y.push("a", member{name: "go.mod", text: "module x"}).GUID, Buildpacks: []string{"go"}}
		first := y.droplet(y.build(r))
		if diff := cmp.Diff(old, first.Bindings); diff != "" || f.staged[0].Services != old.JSON {
			t.Errorf("frozen, and given to the buildpack: %s, %s", diff, f.staged[0].Services)
		}
		if again := y.droplet(y.build(r)); len(f.staged) != 1 || again.Bindings.JSON != old.JSON {
			t.Errorf("the same again: %d stagings, %s", len(f.staged), again.Bindings)
		}
		of["a"] = Bindings{}
		if now := y.droplet(y.build(r)); len(f.staged) != 2 || f.staged[1].Services != "{}" || now.Bindings.JSON != "" {
			t.Errorf("unbound: %d stagings, %+v", len(f.staged), now.Bindings)
		}
		if kept, err := y.droplets.Get(first.GUID); err != nil || kept.Bindings.JSON != old.JSON {
			t.Errorf("what was frozen: %s, %v", kept.Bindings, err)
		}
		for _, line := range y.loggedLines() {
			if strings.Contains(line, "password") {
				t.Errorf("said %q", line)
			}
		}
		if s := fmt.Sprintf("%v %+v", first, first); strings.Contains(s, "password") || !strings.Contains(s, "db") {
			t.Errorf("a droplet prints as %s", s)
		}
	})
}

// Apps share files that run as pushed, but not their service bindings.
func TestBindingsOfSharedFiles(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.setBindings(map[string]Bindings{"a": {JSON: `{"a":[]}`}, "b": {JSON: `{"b":[]}`}})
		y.run()
		var images []string
		for _, app := range []string{"a", "b", "c"} {
			d := y.droplet(y.build(BuildRequest{Package: y.push(app, member{name: "x", text: "x"}).GUID, Buildpacks: []string{"binary"}}))
			want := map[string]string{"a": `{"a":[]}`, "b": `{"b":[]}`, "c": "{}"}[app]
			if d.Bindings.Variable() != want {
				t.Errorf("%s sees %s, want %s", app, d.Bindings.Variable(), want)
			}
			images = append(images, d.Image)
		}
		if len(slices.Compact(images)) != 1 {
			t.Errorf("images %v, want one", images)
		}
	})
}

func TestInvalidBindings(t *testing.T) {
	for name, c := range map[string]struct {
		b    Bindings
		err  error
		want string
	}{
		"large":   {Bindings{JSON: `{"x":"` + strings.Repeat("s", maxBindings) + `"}`, Names: []string{"db", "cache"}}, nil, "unbind some of db, cache"},
		"no JSON": {Bindings{JSON: `secret`}, nil, "is not a JSON object"},
		"a list":  {Bindings{JSON: `["secret"]`}, nil, "is not a JSON object"},
		"unread":  {Bindings{}, errors.New("the disk is gone"), "the disk is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			testWithBuilds(t, func(t *testing.T, y *testBuilds) {
				y.withBuilder(&fakeBuilder{files: map[string]string{"/tmp/app/x": "x"}})
				y.builds.o.Bindings = func(string) (Bindings, error) { return c.b, c.err }
				y.run()
				for _, fresh := range []bool{false, true} {
					b := y.build(BuildRequest{Package: y.push("a", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go"}, Fresh: fresh})
					if b.State != BuildFailed || !strings.Contains(b.Error, c.want) || strings.Contains(b.Error, "secret") {
						t.Errorf("build = %s %q, want %q", b.State, b.Error, c.want)
					}
				}
			})
		})
	}
}

// packedDroplet returns a droplet to upload, with a file of size bytes.
func packedDroplet(t *testing.T, size int64) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./app/x", Mode: 0o644, Size: size}), archive.WriteAll(w, make([]byte, size)),
		w.Close(), z.Close())
	if err != nil {
		t.Fatal(err)
	}
	return &out
}

// A droplet that was staged elsewhere has the same size limit as one that is staged
// here. It gets the service bindings of its app.
func TestFill(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.builds.o.DiskMB = 2
		y.setBindings(map[string]Bindings{"a": {JSON: `{"a":[]}`}})
		d, err := y.droplets.Await("a", nil)
		if err != nil {
			t.Fatal(err)
		}
		var bad *archive.Error
		if _, err := y.builds.Fill(t.Context(), d.GUID, packedDroplet(t, 2<<20+1)); !errors.As(err, &bad) || !strings.Contains(err.Error(), "larger than 2M") {
			t.Errorf("too large: %v", err)
		}
		if _, err := y.builds.Fill(t.Context(), d.GUID, packedDroplet(t, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if d, err = y.droplets.Get(d.GUID); err != nil || d.Bindings.JSON != `{"a":[]}` || d.Image == "" {
			t.Errorf("filled %+v, %v", d, err)
		}
	})
}
