package droplet

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// testBuilds combines packages, builds, droplets and their messages for a test.
type testBuilds struct {
	t        *testing.T
	dir      string
	db       *store.DB
	packages *Packages
	droplets *Droplets
	builds   *Builds
	stack    stack.Stack
	lines    []string
	used     map[string]bool // droplets in use; nil: not known
	env      map[string]string
}

func newTestBuilds(t *testing.T) *testBuilds {
	t.Helper()
	y := &testBuilds{t: t, dir: t.TempDir(), stack: stack.Stack{Name: "host", ID: "id1"}, used: map[string]bool{}}
	y.db = openDB(t, filepath.Join(y.dir, "dew.db"))
	y.open()
	return y
}

// open does what a daemon does at its start.
func (y *testBuilds) open() {
	y.t.Helper()
	var err error
	if y.packages, err = NewPackages(y.db, PackageOptions{Dir: filepath.Join(y.dir, "packages"), MinFree: -1}); err != nil {
		y.t.Fatal(err)
	}
	if y.droplets, err = NewDroplets(y.db, filepath.Join(y.dir, "images")); err != nil {
		y.t.Fatal(err)
	}
	y.builds = NewBuilds(y.db, y.packages, y.droplets, BuildOptions{
		Stacks: func(name string) (stack.Stack, error) {
			if name == "windows" {
				return stack.Stack{}, errors.New("stack 'windows' does not exist (use 'host')")
			}
			return y.stack, nil
		},
		Say:   func(app, line string) { y.lines = append(y.lines, app+": "+line) },
		InUse: func(*store.Tx) map[string]bool { return y.used },
	})
}

// run stages in the background until the end of the test, or until stop is called.
func (y *testBuilds) run() (stop func()) {
	ctx, cancel := context.WithCancel(y.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := y.builds.Run(ctx); err != nil {
			y.t.Errorf("Run = %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	y.t.Cleanup(stop)
	return stop
}

func (y *testBuilds) push(app string, ms ...member) Package {
	y.t.Helper()
	k, err := uploadTo(y.t, y.packages, app, nil, zipOf(y.t, ms...))
	if err != nil {
		y.t.Fatal(err)
	}
	time.Sleep(time.Second) // virtual time; the next one is newer
	return k
}

func (y *testBuilds) create(r BuildRequest) Build {
	y.t.Helper()
	b, err := y.builds.Create(y.t.Context(), r)
	if err != nil {
		y.t.Fatal(err)
	}
	time.Sleep(time.Second)
	return b
}

// build creates a build and waits until it is finished.
func (y *testBuilds) build(r BuildRequest) Build {
	y.t.Helper()
	b := y.create(r)
	synctest.Wait()
	b, err := y.builds.Get(b.GUID)
	if err != nil {
		y.t.Fatal(err)
	}
	return b
}

func (y *testBuilds) droplet(b Build) Droplet {
	y.t.Helper()
	if b.State != BuildStaged {
		y.t.Fatalf("build = %+v, want it staged", b)
	}
	d, err := y.droplets.Get(b.Droplet)
	if err != nil {
		y.t.Fatal(err)
	}
	return d
}

// loggedLines returns the messages since the last call.
func (y *testBuilds) loggedLines() []string {
	lines := y.lines
	y.lines = nil
	return lines
}

func (y *testBuilds) image(sha string) map[string]string {
	y.t.Helper()
	r, err := y.droplets.OpenImage(sha)
	if err != nil {
		y.t.Fatal(err)
	}
	defer r.Close()
	out := map[string]string{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			y.t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			y.t.Fatal(err)
		}
		out[h.Name] = string(text)
	}
}

// testWithBuilds runs fn in virtual time.
func testWithBuilds(t *testing.T, fn func(t *testing.T, y *testBuilds)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, newTestBuilds(t)) })
}

func TestBuildCreatesADroplet(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.run()
		k := y.push("a", member{name: "Procfile", text: "web: ./server\nworker: ./work hard\n"}, member{name: "server", text: "#!", mode: 0o755}, member{name: "lib/x", text: "x"})
		b := y.build(BuildRequest{Package: k.GUID, Stack: "cflinuxfs4", Buildpacks: []string{"binary_buildpack"}})
		d := y.droplet(b)
		want := Droplet{
			GUID: b.Droplet, App: "a", Package: k.GUID, Stack: "host", Image: d.Image, Reuse: d.Reuse, CreatedAt: d.CreatedAt,
			Commands:   map[string]string{"web": "./server", "worker": "./work hard"},
			Buildpacks: []UsedBuildpack{{Name: "binary_buildpack", GUID: builtInGUID(BinaryBuildpack)}},
		}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Error(diff)
		}
		image := map[string]string{
			"app/": "", "app/Procfile": "web: ./server\nworker: ./work hard\n", "app/server": "#!", "app/lib/": "", "app/lib/x": "x",
			"staging_info.yml": `{"detected_buildpack":"","start_command":"./server"}`,
		}
		if diff := cmp.Diff(image, y.image(d.Image)); diff != "" {
			t.Error(diff)
		}
		lines := []string{
			fmt.Sprintf("a: Staging package %s (37B)", k.SHA256[:12]),
			"a: Stack 'cflinuxfs4' does not exist here: using stack 'host'",
			"a: Downloading app package...",
			"a: Downloaded app package (37B)",
			"a: Process types: web, worker",
			"a: Uploading droplet...",
			"a: Created image " + d.Image[:12],
			"a: Uploaded droplet (" + y.imageSize(d.Image) + ")",
		}
		if diff := cmp.Diff(lines, y.loggedLines()); diff != "" {
			t.Error(diff)
		}
		if b.App != "a" || b.Package != k.GUID || b.Error != "" || !b.UpdatedAt.After(b.CreatedAt.Add(-1)) {
			t.Errorf("build = %+v", b)
		}
	})
}

// A build without a Procfile succeeds, because the process can provide the start
// command later.
func TestBuildWithoutAProcfile(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.run()
		k := y.push("a", member{name: "server", text: "#!", mode: 0o755}, member{name: "Procfile.old", text: "nonsense"})
		if d := y.droplet(y.build(BuildRequest{Package: k.GUID, Buildpacks: []string{"binary"}})); len(d.Commands) != 0 {
			t.Errorf("commands = %v, want none", d.Commands)
		}
		if got := y.loggedLines(); len(got) != 6 || !strings.Contains(got[4], "Created image") {
			t.Errorf("said %q", got)
		}
	})
}

func TestBuildFails(t *testing.T) {
	for name, tt := range map[string]struct {
		member member
		stack  string
		want   string
	}{
		"bad Procfile":     {member{name: "Procfile", text: "web: ./server\n\nnonsense\n"}, "", "Procfile line 3: "},
		"huge Procfile":    {member{name: "Procfile", text: strings.Repeat("#", 1<<17)}, "", "Procfile must be a regular file of at most 64K"},
		"link as Procfile": {member{name: "Procfile", link: "x"}, "", "Procfile must be a regular file"},
		"unknown stack":    {member{name: "x", text: "x"}, "windows", "stack 'windows' does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			testWithBuilds(t, func(t *testing.T, y *testBuilds) {
				y.run()
				k := y.push("a", tt.member)
				b := y.build(BuildRequest{Package: k.GUID, Stack: tt.stack})
				if b.State != BuildFailed || !strings.HasPrefix(b.Error, tt.want) || b.Droplet != "" {
					t.Errorf("build = %+v, want it to fail by %q", b, tt.want)
				}
				if got := y.loggedLines(); !strings.HasPrefix(got[len(got)-1], "a: Staging failed: "+tt.want) {
					t.Errorf("said %q", got)
				}
				if got := files(t, y.droplets.dir); len(got) != 0 {
					t.Errorf("images left: %v", got)
				}
			})
		})
	}
}

func TestBuildNeedsAReadyPackage(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		k, err := y.packages.Create("a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := y.builds.Create(t.Context(), BuildRequest{Package: k.GUID}); !errors.Is(err, ErrNotReady) {
			t.Errorf("Create = %v, want ErrNotReady", err)
		}
		if _, err := y.builds.Create(t.Context(), BuildRequest{Package: "nobody"}); !errors.Is(err, ErrNotFound) {
			t.Errorf("Create = %v, want ErrNotFound", err)
		}
		if _, err := y.builds.Get("nobody"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get = %v, want ErrNotFound", err)
		}
		if got, err := y.builds.OfApp("a"); len(got) != 0 || err != nil {
			t.Errorf("builds = %v, %v, want none", got, err)
		}
	})
}

// The same bits are staged once. The second build is finished when Create returns,
// without Run, and no file is written. A restage stages them again.
func TestBuildReusesTheImage(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		stop := y.run()
		ms := []member{{name: "Procfile", text: "web: ./server"}, {name: "big", text: strings.Repeat("x", 1<<16)}}
		first := y.droplet(y.build(BuildRequest{Package: y.push("a", ms...).GUID, Buildpacks: []string{"binary"}}))
		stop()
		before := [2]map[string]time.Time{stamps(t, y.droplets.dir), stamps(t, y.packages.o.Dir)}
		y.loggedLines()
		for _, app := range []string{"a", "another"} {
			k := y.push(app, ms...)
			b := y.create(BuildRequest{Package: k.GUID, Buildpacks: []string{"binary"}})
			d := y.droplet(b)
			want := first
			want.GUID, want.App, want.Package, want.CreatedAt = b.Droplet, app, k.GUID, d.CreatedAt
			if diff := cmp.Diff(want, d); diff != "" || d.GUID == first.GUID {
				t.Error(diff)
			}
			if got, err := y.builds.Get(b.GUID); err != nil || got.State != BuildStaged {
				t.Errorf("build = %+v, %v, want it kept as staged", got, err)
			}
			if got := y.loggedLines(); len(got) != 2 || got[1] != app+": Nothing has changed: using image "+first.Image[:12]+" again" {
				t.Errorf("said %q", got)
			}
		}
		if diff := cmp.Diff(before, [2]map[string]time.Time{stamps(t, y.droplets.dir), stamps(t, y.packages.o.Dir)}); diff != "" {
			t.Errorf("something was written:\n%s", diff)
		}
		k := y.push("a", ms...)
		for name, r := range map[string]BuildRequest{
			"restage": {Package: k.GUID, Buildpacks: []string{"binary"}, Fresh: true},
		} {
			if b := y.create(r); b.State != BuildStaging {
				t.Errorf("%s: build = %+v, want it to be staging", name, b)
			}
		}
		y.stack.ID = "id2"
		if b := y.create(BuildRequest{Package: k.GUID, Buildpacks: []string{"binary"}}); b.State != BuildStaging {
			t.Errorf("other stack: build = %+v, want it to be staging", b)
		}
		y.run()
		synctest.Wait()
		all, err := y.builds.OfApp("a")
		if err != nil || len(all) != 4 || slices.ContainsFunc(all, func(b Build) bool { return b.State != BuildStaged }) {
			t.Errorf("builds = %+v, %v, want all staged", all, err)
		}
		if got := files(t, y.droplets.dir); len(got) != 1 {
			t.Errorf("images = %v, want one", got)
		}
	})
}

// A build does not reuse an image that is missing, but creates it again.
func TestBuildCreatesALostImageAgain(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.run()
		k := y.push("a", member{name: "x", text: "x"})
		d := y.droplet(y.build(BuildRequest{Package: k.GUID}))
		if err := os.Remove(y.droplets.path(d.Image)); err != nil {
			t.Fatal(err)
		}
		if again := y.droplet(y.build(BuildRequest{Package: k.GUID})); again.Image != d.Image {
			t.Errorf("image = %s, want %s", again.Image, d.Image)
		}
		if _, ok := y.image(d.Image)["app/x"]; !ok {
			t.Error("the image is not whole")
		}
	})
}

// The next daemon stages unfinished builds, oldest first. It removes images without
// droplets.
func TestBuildsContinueAfterARestart(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		var want []string
		for i := range 3 {
			k := y.push("a", member{name: "x", text: fmt.Sprint(i)})
			y.create(BuildRequest{Package: k.GUID})
			want = append(want, fmt.Sprintf("a: Staging package %s (1B)", k.SHA256[:12]))
		}
		if _, err := y.droplets.AddImage(strings.NewReader(string(pack(t, file("app/orphan"))))); err != nil {
			t.Fatal(err)
		}
		y.open()
		y.run()
		synctest.Wait()
		all, err := y.builds.OfApp("a")
		if err != nil || len(all) != 3 || slices.ContainsFunc(all, func(b Build) bool { return b.State != BuildStaged }) {
			t.Errorf("builds = %+v, %v, want all staged", all, err)
		}
		var got []string
		for _, line := range y.loggedLines() {
			if strings.Contains(line, "Staging") {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got := files(t, y.droplets.dir); len(got) != 3 {
			t.Errorf("images = %v, want three", got)
		}
	})
}

// A daemon that stops while it stages leaves the build unfinished for the next one.
func TestBuildContinuesInTheNextDaemon(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		ctx, cancel := context.WithCancel(t.Context())
		k := y.push("a", member{name: "x", text: "x"})
		b := y.create(BuildRequest{Package: k.GUID})
		y.builds.o.Say = func(string, string) { cancel() }
		if err := y.builds.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		if got, err := y.builds.Get(b.GUID); err != nil || got.State != BuildStaging {
			t.Errorf("build = %+v, %v, want it to be staging", got, err)
		}
		if got := files(t, y.droplets.dir); len(got) != 0 {
			t.Errorf("left over: %v", got)
		}
		y.open()
		y.run()
		synctest.Wait()
		if got, err := y.builds.Get(b.GUID); err != nil || got.State != BuildStaged {
			t.Errorf("build = %+v, %v, want it staged", got, err)
		}
	})
}

// An app keeps its newest builds and droplets, and those in use. Images without
// droplets are removed.
func TestOldBuildsAndDropletsAreCollected(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.run()
		var ds []Droplet
		push := func(i int) {
			k := y.push("a", member{name: "x", text: fmt.Sprint(i)})
			ds = append(ds, y.droplet(y.build(BuildRequest{Package: k.GUID})))
		}
		for i := range 3 {
			push(i)
		}
		y.used[ds[1].GUID] = true
		for i := 3; i < 8; i++ {
			push(i)
		}
		wantStored(t, y, []Droplet{ds[7], ds[6], ds[5], ds[4], ds[3], ds[1]})

		y.used = nil // the droplets in use are not known, so none is removed
		push(8)
		wantStored(t, y, []Droplet{ds[8], ds[7], ds[6], ds[5], ds[4], ds[3], ds[1]})

		y.used = map[string]bool{}
		for range keepBuilds {
			k := y.push("a", member{name: "x", text: "same"})
			y.build(BuildRequest{Package: k.GUID})
		}
		if got := files(t, y.droplets.dir); len(got) != 1 {
			t.Errorf("images = %v, want the one of all droplets", got)
		}
		all, err := y.builds.OfApp("a")
		if err != nil || len(all) != keepBuilds || !all[0].CreatedAt.After(all[keepBuilds-1].CreatedAt) {
			t.Errorf("%d builds, %v, want %d, newest first", len(all), err, keepBuilds)
		}
	})
}

func wantStored(t *testing.T, y *testBuilds, want []Droplet) {
	t.Helper()
	got, err := y.droplets.OfApp("a")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	var images []string
	for _, d := range want {
		images = append(images, d.Image+".tar")
	}
	slices.Sort(images)
	if diff := cmp.Diff(images, files(t, y.droplets.dir)); diff != "" {
		t.Error(diff)
	}
}

// Deleting an app removes everything of it, even while it is being staged.
func TestDeleteApp(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.builds.o.Say = func(app, line string) {
			if app == "late" && strings.HasPrefix(line, "Created image") {
				if err := y.builds.DeleteApp("late"); err != nil {
					t.Error(err)
				}
			}
		}
		y.run()
		kept := y.droplet(y.build(BuildRequest{Package: y.push("b", member{name: "x", text: "b"}).GUID}))
		y.build(BuildRequest{Package: y.push("a", member{name: "x", text: "a"}).GUID})
		y.create(BuildRequest{Package: y.push("late", member{name: "x", text: "late"}).GUID})
		synctest.Wait()
		for range 2 { // it can be repeated
			if err := y.builds.DeleteApp("a"); err != nil {
				t.Fatal(err)
			}
		}
		for _, app := range []string{"a", "late"} {
			bs, err1 := y.builds.OfApp(app)
			ds, err2 := y.droplets.OfApp(app)
			ks, err3 := y.packages.OfApp(app)
			if len(bs)+len(ds)+len(ks) > 0 || err1 != nil || err2 != nil || err3 != nil {
				t.Errorf("%s has %v, %v, %v (%v)", app, bs, ds, ks, errors.Join(err1, err2, err3))
			}
		}
		if diff := cmp.Diff([]string{kept.Image + ".tar"}, files(t, y.droplets.dir)); diff != "" {
			t.Error(diff)
		}
		if got := files(t, y.packages.o.Dir); len(got) != 2 {
			t.Errorf("packages = %v, want one tree", got)
		}
	})
}

// Several goroutines can push and build at the same time.
func TestBuildsConcurrently(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.builds.o.Say = func(string, string) {}
		y.run()
		for i := range 6 {
			go func() {
				for n := range 3 {
					k := y.push(fmt.Sprint("app", i), member{name: "x", text: fmt.Sprint(n % 2)})
					y.create(BuildRequest{Package: k.GUID})
				}
			}()
		}
		time.Sleep(time.Hour)
		for i := range 6 {
			all, err := y.builds.OfApp(fmt.Sprint("app", i))
			if err != nil || len(all) != 3 || slices.ContainsFunc(all, func(b Build) bool { return b.State != BuildStaged }) {
				t.Errorf("builds = %+v, %v, want all staged", all, err)
			}
		}
		if got := files(t, y.droplets.dir); len(got) != 2 {
			t.Errorf("images = %v, want two", got)
		}
	})
}

// imageSize returns the size of an image as log lines have it.
func (y *testBuilds) imageSize(sha string) string {
	y.t.Helper()
	fi, err := os.Stat(y.droplets.path(sha))
	if err != nil {
		y.t.Fatal(err)
	}
	return archive.Size(fi.Size())
}
