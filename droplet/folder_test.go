package droplet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/droplet/pool"
)

// folderOf uploads a folder with one script.
func (y *testBuilds) folderOf(space, name, script string) (string, error) {
	raw := zipOf(y.t, member{name: "bin/detect", text: script, mode: 0o755})
	return y.builds.AddFolder(y.t.Context(), FolderUpload{Space: space, Name: name, Zip: bytes.NewReader(raw), Size: int64(len(raw))})
}

// names returns the stored buildpack folders.
func (y *testBuilds) names() (out []string) {
	y.t.Helper()
	all, err := y.packages.folders.All()
	if err != nil {
		y.t.Fatal(err)
	}
	for _, f := range all {
		out = append(out, f.Space+" "+f.Name)
	}
	return out
}

// An app can be staged with a folder of its own space. The name is the same as long as
// the files are.
func TestStageWithAnUploadedFolder(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{"/tmp/app/server": "built", "/tmp/result/release.yml": "default_process_types: {web: ./x}"}}
		y.withBuilder(f)
		y.run()
		name, err := y.folderOf("s1", "perl", "#!/bin/sh\n")
		if err != nil || !strings.HasPrefix(name, "folder:perl@") {
			t.Fatalf("name = %q, %v", name, err)
		}
		if again, err := y.folderOf("s1", "perl", "#!/bin/sh\n"); again != name || err != nil {
			t.Errorf("equal files are called %s, %v, want %s", again, err, name)
		}
		if other, err := y.folderOf("s1", "perl", "#!/bin/sh\ntrue\n"); other == name || err != nil {
			t.Errorf("other files are called %s too, %v", other, err)
		}
		if err := y.packages.CheckFolders("s1", []string{"go_buildpack", name}); err != nil {
			t.Errorf("in its space: %v", err)
		}
		var bad *BuildpackError
		if err := y.packages.CheckFolders("s2", []string{name}); !errors.As(err, &bad) {
			t.Errorf("in another space: %v, want a BuildpackError", err)
		}
		k := y.push("a", member{name: "x", text: "x"})
		d := y.droplet(y.build(BuildRequest{Package: k.GUID, Buildpacks: []string{name}}))
		if !d.Custom || d.Buildpacks[0].Name != name {
			t.Errorf("droplet = %+v", d)
		}
		layers := f.staged[0].Layers
		r, err := layers[len(layers)-1].Open()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if raw, err := io.ReadAll(r); err != nil || !bytes.Contains(raw, []byte("app/bin/detect")) || layers[len(layers)-1].Strip != "app" {
			t.Errorf("the last layer has %d bytes, %v, want the folder", len(raw), err)
		}
		if b := y.create(BuildRequest{Package: k.GUID, Buildpacks: []string{name}}); b.State != BuildStaged {
			t.Errorf("the same again is %s", b.State)
		}
		if b := y.build(BuildRequest{Package: k.GUID, Buildpacks: []string{"folder:perl@none"}}); b.State != BuildFailed || !strings.Contains(b.Error, "dew push -b FOLDER") {
			t.Errorf("a folder that is gone: %+v", b)
		}
	})
}

// A folder that no app and no build uses is removed, with its files.
func TestUploadedFoldersAreCollected(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		used := []string{}
		y.builds.o.Buildpacks = func() ([]string, error) { return used, nil }
		f := &fakeBuilder{hold: make(chan struct{}), err: errors.New("x")}
		y.withBuilder(f)
		y.run()
		first, err := y.folderOf("s1", "first", "1")
		if err != nil {
			t.Fatal(err)
		}
		second, err := y.folderOf("s1", "second", "2")
		if err != nil {
			t.Fatal(err)
		}
		if got := y.names(); len(got) != 2 {
			t.Fatalf("kept %v, want both: no app has had the time to name them", got)
		}
		used = []string{first}
		k := y.push("a", member{name: "x", text: "x"})
		y.create(BuildRequest{Package: k.GUID, Buildpacks: []string{second}})
		time.Sleep(2 * folderLease)
		if err := y.builds.collectFolders(); err != nil || len(y.names()) != 2 {
			t.Errorf("kept %v, %v, want the one of an app and the one of a build", y.names(), err)
		}
		close(f.hold)
		synctest.Wait()
		if got := y.names(); len(got) != 1 || got[0] != "s1 "+first {
			t.Errorf("kept %v after the build, want %s", got, first)
		}
		if got := files(t, y.packages.o.Dir); len(got) != 4 {
			t.Errorf("files = %v, want a tree of the package and one of the folder", got)
		}
		used = nil
		for i := range spareFolders + 3 {
			if _, err := y.folderOf("s2", "many", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := y.names(); len(got) != spareFolders {
			t.Errorf("kept %d unused folders, want %d", len(got), spareFolders)
		}
		y.open() // as the next daemon does
		if got := files(t, y.packages.o.Dir); len(got) != 2+2*spareFolders {
			t.Errorf("%d files after a restart: the folders lost theirs", len(got))
		}
	})
}

func TestFolderRefused(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		var bad *pool.Error
		if _, err := y.folderOf("s", "a/b", "x"); !errors.As(err, &bad) {
			t.Errorf("a name with a slash: %v", err)
		}
		raw := zipOf(t, member{name: "detect", text: "x"})
		_, err := y.builds.AddFolder(t.Context(), FolderUpload{Space: "s", Name: "a", Zip: bytes.NewReader(raw), Size: int64(len(raw))})
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "bin/detect") {
			t.Errorf("no script: %v", err)
		}
		if got := files(t, y.packages.o.Dir); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}
