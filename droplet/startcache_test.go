package droplet

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/testkit"
)

const testGo = "go1.26.0 linux/amd64"

// goBuilder returns a builder whose builds report a version of Go.
func goBuilder() *fakeBuilder {
	return &fakeBuilder{files: map[string]string{
		"/tmp/app/x": "x", "/tmp/cache/std": "compiled", "/tmp/result/go-version": testGo + "\n", "/tmp/result/used": "4", "/tmp/result/detected": "go",
	}}
}

// waitForStart waits until a requested start cache exists, or has failed.
func waitForStart() {
	time.Sleep(startDelay + time.Second)
	synctest.Wait()
}

// layerPaths returns where the layers of a staging are unpacked.
func layerPaths(s Staging) (paths []string) {
	for _, l := range s.Layers {
		paths = append(paths, l.Path)
	}
	return paths
}

// The first build in Go is followed by one that fills the cache of new Go apps, without
// anything of the app.
func TestStartCache(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := goBuilder()
		y.withBuilder(f)
		y.builds.o.StartCaches, y.env = true, map[string]string{"GOFLAGS": "-toolexec=/evil"}
		y.run()
		stage := func(app string, files ...member) {
			t.Helper()
			y.droplet(y.build(BuildRequest{Package: y.push(app, files...).GUID}))
			waitForStart()
		}
		module := member{name: "go.mod", text: "module x"}
		stage("a", module)
		if len(f.staged) != 2 {
			t.Fatalf("%d stagings, want that of the app and that of the cache", len(f.staged))
		}
		start := f.staged[1]
		if start.App != "a" || len(start.Env) != 0 || start.Services != "" || !strings.HasSuffix(start.Command, ">/dev/null 2>&1") {
			t.Errorf("the cache is created with %+v", start)
		}
		if diff := cmp.Diff([]string{"/tmp", "/tmp/buildpacks", "/tmp/buildpacks/0"}, layerPaths(start)); diff != "" {
			t.Error(diff)
		}
		stage("b", module, member{name: "main.go", text: "package main"})
		if len(f.staged) != 3 || !slices.Contains(layerPaths(f.staged[2]), "/tmp/cache") {
			t.Errorf("%d stagings, want one more, which begins with the cache: %v", len(f.staged), layerPaths(f.staged[len(f.staged)-1]))
		}
		stage("c", member{name: "sub/go.mod", text: "module x"}, member{name: "index.html", text: "hello"})
		if slices.Contains(layerPaths(f.staged[3]), "/tmp/cache") {
			t.Error("an app in another language begins with the cache of Go")
		}
		if err := y.builds.Caches().Clear(); err != nil {
			t.Fatal(err)
		}
		stage("d", module)
		if slices.Contains(layerPaths(f.staged[4]), "/tmp/cache") || len(f.staged) != 6 {
			t.Errorf("%d stagings after the caches were cleared, want that of the app and that of the cache", len(f.staged))
		}
	})
}

// No build depends on the start cache. A failed one is not tried again.
func TestStartCacheFails(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(f *fakeBuilder)
		stays  bool // a cache is stored
	}{
		"build fails":     {change: func(f *fakeBuilder) { f.code = 1 }},
		"container fails": {change: func(f *fakeBuilder) { f.err = errors.New("no container") }},
		"other version":   {change: func(f *fakeBuilder) { f.files["/tmp/result/go-version"] = "go1.19 linux/amd64" }, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			testWithBuilds(t, func(t *testing.T, y *testBuilds) {
				f := &switchedBuilder{first: goBuilder(), next: goBuilder()}
				tt.change(f.next)
				y.withBuilder(f.first)
				y.builds.o.Builder, y.builds.o.StartCaches = f, true
				y.run()
				for _, app := range []string{"a", "b"} {
					y.droplet(y.build(BuildRequest{Package: y.push(app, member{name: "go.mod", text: "module x"}).GUID}))
					waitForStart()
				}
				if len(f.next.staged) != 1 {
					t.Errorf("the cache was tried %d times, want once", len(f.next.staged))
				}
				if _, ok := y.builds.caches.Start(goLanguage, f.first.staged[0].Stack.ID); ok != tt.stays {
					t.Errorf("cache stored: %v, want %v", ok, tt.stays)
				}
			})
		})
	}
}

// switchedBuilder stages apps with the first builder and start caches with the next.
type switchedBuilder struct{ first, next *fakeBuilder }

func (f *switchedBuilder) Build(ctx context.Context, s Staging, done func(context.Context, int, Files) error) error {
	if strings.Contains(s.Command, "/dev/null") {
		return f.next.Build(ctx, s, done)
	}
	return f.first.Build(ctx, s, done)
}

// A start cache does not delay the next build of its app, and ends with the app.
func TestStartCacheRunsAside(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &switchedBuilder{first: goBuilder(), next: goBuilder()}
		f.next.hold = make(chan struct{})
		y.withBuilder(f.first)
		y.builds.o.Builder, y.builds.o.StartCaches = f, true
		y.run()
		for _, text := range []string{"module x", "module y"} {
			y.droplet(y.build(BuildRequest{Package: y.push("a", member{name: "go.mod", text: text}).GUID}))
		}
		waitForStart()
		if got := y.builds.Apps(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("apps with a container = %v, want a", got)
		}
		if err := y.builds.DeleteApp("a"); err != nil {
			t.Fatal(err)
		}
		waitForStart()
		if got := y.builds.Apps(); len(got) != 0 {
			t.Errorf("apps with a container = %v, want none", got)
		}
		close(f.next.hold)
		y.droplet(y.build(BuildRequest{Package: y.push("b", member{name: "go.mod", text: "module x"}).GUID}))
		waitForStart()
		if _, ok := y.builds.caches.Start(goLanguage, f.first.staged[0].Stack.ID); !ok {
			t.Error("the next app does not create the cache")
		}
	})
}

// Every package that the start app imports exists.
func TestStartApp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for tr := tar.NewReader(bytes.NewReader(testkit.Must(startAppTar())(t))); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), testkit.Must(io.ReadAll(tr))(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"\nnet/http\n", "\nlog/slog\n", "\nstart\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("no %q: %v\n%s", want, err, out)
		}
	}
}
