package droplet

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/buildcache"
)

// fakeBuilder finishes every staging with the given result.
type fakeBuilder struct {
	code   int
	err    error
	files  map[string]string // by path in the container
	mu     sync.Mutex        // guards staged
	staged []Staging
	hold   chan struct{} // not nil: builds wait for it, or for their context
}

func (f *fakeBuilder) Build(ctx context.Context, s Staging, done func(context.Context, int, Files) error) error {
	f.mu.Lock()
	f.staged = append(f.staged, s)
	f.mu.Unlock()
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.err != nil {
		return f.err
	}
	return done(ctx, f.code, f)
}

func (f *fakeBuilder) Pack(_ context.Context, w io.Writer, p Packing) error {
	out := tar.NewWriter(w)
	left := p.MaxBytes
	add := func(name, text string) error {
		if left -= int64(len(text)); left < 0 {
			return &StagingError{StagingFailed, "too large"}
		}
		if filepath.Base(name) == "huge" {
			return &StagingError{StagingFailed, "its files are too large"}
		}
		return addFile(out, name, []byte(text))
	}
	for _, d := range p.Folders {
		for _, name := range slices.Sorted(maps.Keys(f.files)) {
			if rest, ok := strings.CutPrefix(name, d.From+"/"); ok {
				if err := add(filepath.Join(d.As, rest), f.files[name]); err != nil {
					return err
				}
			}
		}
	}
	for _, x := range p.Files {
		if err := add(x.Path, x.Data); err != nil {
			return err
		}
	}
	return out.Close()
}

// withBuilder adds a builder and a catalog.
func (y *testBuilds) withBuilder(f *fakeBuilder) {
	y.t.Helper()
	c, err := NewCatalog(y.db, CatalogOptions{Packages: PackageOptions{Dir: filepath.Join(y.dir, "buildpacks")}})
	if err != nil {
		y.t.Fatal(err)
	}
	y.builds.o.Builder, y.builds.o.Catalog, y.builds.caches = f, c, buildcache.New(y.db, filepath.Join(y.dir, "cache"), DefaultStagingDiskMB<<20, maxStagedFiles)
	y.builds.o.Env = func(string) (map[string]string, error) { return y.env, nil }
}

func TestStageWithBuildpacks(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{
			"/tmp/app/server": "built", "/tmp/deps/1/lib/x": "x", "/tmp/profile.d/a.sh": "a", "/tmp/cache/kept": "for later",
			"/tmp/result/release.yml":  "default_process_types: {web: ./release, clock: tick}",
			"/tmp/result/launch-0.yml": "processes:\n- {type: web, command: ./launch}\n- type: agent\n  command: ./agent\n  limits: {memory: 32}\n  platforms: {cloudfoundry: {sidecar_for: [web]}}\n",
			"/tmp/result/Procfile":     "web: ./procfile\n",
		}}
		y.withBuilder(f)
		y.env = map[string]string{"A": "1"}
		y.run()
		k := y.push("a", member{name: "go.mod", text: "module x"})
		b := y.build(BuildRequest{Package: k.GUID, Buildpacks: []string{"java", "go_buildpack"}})
		d := y.droplet(b)
		want := Droplet{
			GUID: b.Droplet, App: "a", Package: k.GUID, Stack: "host", Image: d.Image, Reuse: d.Reuse, CreatedAt: d.CreatedAt,
			Commands:   map[string]string{"web": "./procfile", "clock": "tick"},
			Sidecars:   []FoundSidecar{{Name: "agent", Command: "./agent", ProcessTypes: []string{"web"}, MemoryMB: 32}},
			Buildpacks: []UsedBuildpack{{Name: "java_buildpack", GUID: builtInGUID(JavaBuildpack)}, {Name: "go_buildpack", GUID: builtInGUID(GoBuildpack)}}, Java: true,
		}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Error(diff)
		}
		image := y.image(d.Image)
		if info := image["staging_info.yml"]; !strings.Contains(info, `"detected_buildpack":"go_buildpack"`) || !strings.Contains(info, `"start_command":"./procfile"`) {
			t.Errorf("staging_info.yml = %s", info)
		}
		if image["app/server"] != "built" || image["deps/1/lib/x"] != "x" || image["profile.d/a.sh"] != "a" || len(image) != 4 {
			t.Errorf("image = %v", image)
		}
		s := f.staged[0]
		if s.Env["A"] != "1" || s.MemoryMB != DefaultStagingMemoryMB || s.Timeout != DefaultStagingTimeout || len(s.Layers) != 4 {
			t.Errorf("staged with %+v, want two layers and two buildpacks", s)
		}
		y.create(BuildRequest{Package: k.GUID, Buildpacks: []string{"java", "go_buildpack"}})
		if len(f.staged) != 1 {
			t.Error("the same again was staged again")
		}
		y.env = map[string]string{"A": "2"}
		y.build(BuildRequest{Package: k.GUID, Buildpacks: []string{"java", "go_buildpack"}})
		if len(f.staged) != 2 || len(f.staged[1].Layers) != 5 {
			t.Errorf("with another variable: %d stagings, want one more, with the cache", len(f.staged))
		}
		if err := y.builds.DeleteApp("a"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(y.builds.caches.File("a")); !os.IsNotExist(err) {
			t.Errorf("the cache of an app that is gone: %v", err)
		}
	})
}

// The result of buildpacks depends on the app's cache, which its developers fill. Other
// apps never get that result, and no app gets it after the caches were cleared.
func TestStagedFilesStayWithTheirApp(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{"/tmp/app/x": "x", "/tmp/cache/x": "x"}}
		y.withBuilder(f)
		y.run()
		stage := func(app string, want int) {
			t.Helper()
			y.droplet(y.build(BuildRequest{Package: y.push(app, member{name: "go.mod", text: "module x"}).GUID, Buildpacks: []string{"go"}}))
			if len(f.staged) != want {
				t.Errorf("%d stagings, want %d", len(f.staged), want)
			}
		}
		stage("a", 1)
		stage("a", 1)
		stage("b", 2)
		if err := y.builds.caches.Clear(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(y.builds.caches.File("a")); !os.IsNotExist(err) {
			t.Errorf("a cache that was cleared: %v", err)
		}
		stage("a", 3)
		if err := y.builds.caches.ClearOf("b"); err != nil {
			t.Fatal(err)
		}
		stage("a", 3)
		stage("b", 4)
	})
}

// A cache that a build stores while its app is deleted is removed as well, at the
// latest by the next daemon.
func TestCachesAreRemovedWithApps(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{"/tmp/app/x": "x", "/tmp/cache/x": "x"}}
		y.withBuilder(f)
		stop := y.run()
		y.droplet(y.build(BuildRequest{Package: y.push("a", member{name: "go.mod", text: "module x"}).GUID, Buildpacks: []string{"go"}}))
		stop()
		for _, name := range []string{y.builds.caches.File("gone"), filepath.Join(filepath.Join(y.dir, "cache"), "cache-1"+archive.Unfinished)} {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		y.run()
		synctest.Wait()
		if diff := cmp.Diff([]string{"a.tar"}, files(t, filepath.Join(y.dir, "cache"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestStageDetects(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{
			"/tmp/app/x": "x", "/tmp/result/detected": "ruby\n", "/tmp/result/used": "2\n", "/tmp/result/release.yml": "",
		}}
		y.withBuilder(f)
		y.run()
		d := y.droplet(y.build(BuildRequest{Package: y.push("a", member{name: "Gemfile", text: ""}).GUID}))
		if diff := cmp.Diff([]UsedBuildpack{{Name: "ruby_buildpack", GUID: builtInGUID(RubyBuildpack), Detected: "ruby"}}, d.Buildpacks); diff != "" || d.Java {
			t.Errorf("java %v, %s", d.Java, diff)
		}
	})
}

// bomb returns YAML whose lines refer to each other. A naive reader would never finish.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: y}\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&b, "a%d: &a%d {p: *a%d, <<: *a%d, q: *a%d}\n", i, i, i-1, i-1, i-1)
	}
	return b.String() + "default_process_types: *a59\n"
}

// slowPacker notices late that its files are no longer needed.
type slowPacker struct {
	*fakeBuilder
	packing, left atomic.Int32
}

func (f *slowPacker) Build(ctx context.Context, _ Staging, done func(context.Context, int, Files) error) error {
	err := done(ctx, 0, f)
	f.left.Store(f.packing.Load())
	return err
}

func (f *slowPacker) Pack(ctx context.Context, w io.Writer, p Packing) error {
	f.packing.Add(1)
	defer f.packing.Add(-1)
	err := f.fakeBuilder.Pack(ctx, w, p)
	time.Sleep(time.Second)
	return err
}

// Packing always finishes before the container is removed, even if the files are
// refused.
func TestPackingEndsBeforeTheContainer(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &slowPacker{fakeBuilder: &fakeBuilder{files: map[string]string{"/tmp/app/.wh.x": "x"}}}
		y.withBuilder(f.fakeBuilder)
		y.builds.o.Builder = f
		y.run()
		b := y.create(BuildRequest{Package: y.push("a", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go_buildpack"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if b, err := y.builds.Get(b.GUID); err != nil || b.State != BuildFailed || f.left.Load() != 0 {
			t.Errorf("build = %+v, %v, with %d still packing, want it failed and none", b, err, f.left.Load())
		}
	})
}

func TestStageFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     *fakeBuilder
		want  string
		files map[string]string
	}{
		{"no app", &fakeBuilder{code: 222}, "NoAppDetectedError - An app was not successfully detected", nil},
		{"compile", &fakeBuilder{code: 223}, "BuildpackCompileFailed - App staging failed in the buildpack compile phase: bin/compile ended", map[string]string{"/tmp/result/failed": "bin/compile ended\n"}},
		{"release", &fakeBuilder{code: 224}, "BuildpackReleaseFailed - App staging failed in the buildpack release phase", nil},
		{"fetch", &fakeBuilder{code: 225}, "BuildpackCompileFailed - App staging failed: no git", map[string]string{"/tmp/result/failed": "no git"}},
		{"bomb", &fakeBuilder{}, "BuildpackReleaseFailed", map[string]string{"/tmp/result/release.yml": bomb()}},
		{"killed", &fakeBuilder{code: 137}, "StagingError - the buildpacks exited with status 137", nil},
		{"no YAML", &fakeBuilder{}, "BuildpackReleaseFailed", map[string]string{"/tmp/result/release.yml": "a: [b"}},
		{"no process type", &fakeBuilder{}, "BuildpackReleaseFailed", map[string]string{"/tmp/result/release.yml": "default_process_types: {'a b': c}"}},
		{"launch.yml", &fakeBuilder{}, "launch.yml of buildpack go_buildpack: processes[0] has no command", map[string]string{"/tmp/result/launch-0.yml": "processes: [{type: web}]"}},
		{"Procfile", &fakeBuilder{}, "Procfile line 1", map[string]string{"/tmp/result/Procfile": "what"}},
		{"long tale", &fakeBuilder{}, "too large", map[string]string{"/tmp/result/release.yml": strings.Repeat("x", maxResult+1)}},
		{"bad image", &fakeBuilder{}, "cannot use the output of the buildpacks: image entry", map[string]string{"/tmp/app/.wh.x": "x"}},
		{"too much", &fakeBuilder{}, "StagingError - its files are too large", map[string]string{"/tmp/app/huge": "!"}},
		{"limits", &fakeBuilder{err: &StagingError{StagingFailed, "it took too long"}}, "StagingError - it took too long", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			testWithBuilds(t, func(t *testing.T, y *testBuilds) {
				c.f.files = c.files
				y.withBuilder(c.f)
				y.run()
				b := y.build(BuildRequest{Package: y.push("a", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go_buildpack"}})
				if b.State != BuildFailed || !strings.Contains(b.Error, c.want) || strings.Contains(b.Error, "cannot read the image") {
					t.Errorf("build = %s %q, want it failed with %q", b.State, b.Error, c.want)
				}
				if said := y.loggedLines(); !strings.Contains(said[len(said)-1], c.want) {
					t.Errorf("said %q", said)
				}
			})
		})
	}
}

// A build that a stopping daemon interrupts is staged again. A build whose app is
// deleted stops, and others can start.
func TestStageIsInterrupted(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{hold: make(chan struct{}), files: map[string]string{"/tmp/app/x": "x"}}
		y.withBuilder(f)
		stop := y.run()
		b := y.build(BuildRequest{Package: y.push("a", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go"}})
		stop()
		if b, err := y.builds.Get(b.GUID); err != nil || b.State != BuildStaging {
			t.Errorf("build = %+v, %v, want it to be staging", b, err)
		}
		y.run()
		synctest.Wait()
		if len(f.staged) != 2 {
			t.Fatalf("%d stagings, want it begun again", len(f.staged))
		}
		if err := y.builds.DeleteApp("a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := y.builds.Get(b.GUID); !errors.Is(err, ErrNotFound) {
			t.Errorf("build of an app that is gone: %v", err)
		}
		close(f.hold)
		y.droplet(y.build(BuildRequest{Package: y.push("b", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go"}}))
	})
}

// Builds of different apps are staged at the same time, those of one app are not.
func TestStageInParallel(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{hold: make(chan struct{}), files: map[string]string{"/tmp/app/x": "x"}}
		y.withBuilder(f)
		y.builds.parallel = 2
		for _, app := range []string{"a", "a", "b", "c"} {
			y.create(BuildRequest{Package: y.push(app, member{name: "x", text: app}).GUID, Buildpacks: []string{"go"}})
		}
		y.builds.o.Say = func(string, string) {}
		y.run()
		synctest.Wait()
		var apps []string
		for _, s := range f.staged {
			apps = append(apps, s.App)
		}
		if slices.Sort(apps); !slices.Equal(apps, []string{"a", "b"}) {
			t.Errorf("staged at once: %v, want a and b", apps)
		}
		close(f.hold)
		synctest.Wait()
		if all, err := y.builds.All(); err != nil || slices.ContainsFunc(all, func(b Build) bool { return b.State != BuildStaged }) {
			t.Errorf("builds = %+v, %v, want all staged", all, err)
		}
	})
}

func FuzzParseLaunch(f *testing.F) {
	f.Add("processes:\n- {type: web, command: x, limits: {memory: 3}, platforms: {cloudfoundry: {sidecar_for: [web]}}}")
	f.Add("processes: 3")
	f.Add("a: &a {x: y}\nprocesses: [{<<: *a}]")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseLaunch(text)
		if err != nil {
			return
		}
		for kind, command := range l.commands {
			if !processType.MatchString(kind) || command == "" {
				t.Errorf("process %q: %q", kind, command)
			}
		}
		for _, s := range l.sidecars {
			if s.Name == "" || s.Command == "" || len(s.ProcessTypes) == 0 || s.MemoryMB < 0 {
				t.Errorf("sidecar %+v", s)
			}
		}
	})
}

func FuzzParseRelease(f *testing.F) {
	f.Add("default_process_types:\n  web: |-\n    a b\n")
	f.Fuzz(func(t *testing.T, text string) {
		commands, err := parseRelease(text)
		for kind, command := range commands {
			if err != nil || !processType.MatchString(kind) || command == "" {
				t.Errorf("process %q: %q, %v", kind, command, err)
			}
		}
	})
}

// slowRemover needs a minute to remove its container, and fails.
type slowRemover struct{ *fakeBuilder }

func (f slowRemover) Build(ctx context.Context, s Staging, done func(context.Context, int, Files) error) error {
	err := f.fakeBuilder.Build(ctx, s, done)
	time.Sleep(time.Minute)
	return errors.Join(err, errors.New("cannot release address"))
}

// An app can start before the container of its build is removed. An error of the removal
// does not change the result. The next build of the app waits for it.
func TestStagedBeforeTheContainerIsRemoved(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := slowRemover{&fakeBuilder{files: map[string]string{"/tmp/app/x": "x"}}}
		y.withBuilder(f.fakeBuilder)
		y.builds.o.Builder = f
		y.run()
		request := BuildRequest{Package: y.push("a", member{name: "x", text: "x"}).GUID, Buildpacks: []string{"go_buildpack"}, Fresh: true}
		first := y.create(request)
		synctest.Wait()
		if b, err := y.builds.Get(first.GUID); err != nil || b.State != BuildStaged {
			t.Errorf("build = %+v, %v while its container is removed, want STAGED", b, err)
		}
		if got := y.builds.Apps(); len(got) != 1 {
			t.Errorf("apps with builds = %v, want one: its container still exists", got)
		}
		second := y.create(request)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if b, err := y.builds.Get(second.GUID); err != nil || b.State != BuildStaging {
			t.Errorf("second build = %+v, %v, want it to wait", b, err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, guid := range []string{first.GUID, second.GUID} {
			if b, err := y.builds.Get(guid); err != nil || b.State != BuildStaged {
				t.Errorf("build = %+v, %v, want STAGED", b, err)
			}
		}
		if got := y.builds.Apps(); len(got) != 0 {
			t.Errorf("apps with builds = %v, want none", got)
		}
	})
}
