package droplet

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// pusherDir is the variable with the folder in which this program, started by the test
// below, pushes and stages until it is killed.
const pusherDir = "DEW_TEST_PUSHER_DIR"

// If the daemon is killed at any time, the next one has only complete trees and images.
// It removes the rest, and finishes every build.
func TestKilledAtAnyMoment(t *testing.T) {
	if dir := os.Getenv(pusherDir); dir != "" {
		pushForEver(t, dir)
	}
	rounds := 2
	if os.Getenv("DEW_PROOF") != "" {
		rounds = 200
	}
	dir := t.TempDir()
	for round := range rounds {
		killPusher(t, dir)
		inspectStore(t, dir)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func openAll(t *testing.T, dir string) (*store.DB, *Packages, *Droplets, *Builds) {
	t.Helper()
	db, err := store.Open(filepath.Join(dir, "dew.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPackages(db, PackageOptions{Dir: filepath.Join(dir, "packages"), MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewDroplets(db, filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	return db, p, s, NewBuilds(db, p, s, BuildOptions{
		Stacks: func(string) (stack.Stack, error) { return stack.Stack{Name: "host", ID: "id"}, nil },
		InUse:  func(*store.Tx) map[string]bool { return map[string]bool{} },
	})
}

func pushForEver(t *testing.T, dir string) {
	_, p, _, builds := openAll(t, dir)
	go func() { _ = builds.Run(t.Context()) }()
	fmt.Fprintln(os.Stderr, "begins")
	for {
		k := mustUpload(t, p, nil, zipOf(t,
			member{name: "Procfile", text: "web: ./x"},
			member{name: "x", text: fmt.Sprint(rand.IntN(20))},
			member{name: "y", text: strings.Repeat("y", 1<<16)}))
		if _, err := builds.Create(t.Context(), BuildRequest{Package: k.GUID}); err != nil {
			t.Fatal(err)
		}
	}
}

// killPusher starts a pusher and kills it after a short time.
func killPusher(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), pusherDir+"="+dir)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("begins\n"))); err != nil {
		t.Errorf("the pusher does not begin: %v", err)
	}
	testkit.RandomPause(60 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Errorf("the pusher ended by itself: %v", err)
	}
}

// inspect acts as the next daemon: it finishes the builds and checks everything.
func inspectStore(t *testing.T, dir string) {
	t.Helper()
	db, p, s, builds := openAll(t, dir)
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- builds.Run(ctx) }()
	testkit.Eventually(t, "no build is being staged", func() error {
		todo, err := builds.builds.By("state", string(BuildStaging))
		if err == nil && len(todo) > 0 {
			err = fmt.Errorf("%d are", len(todo))
		}
		return err
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	bs, err := builds.OfApp("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bs {
		gone := b.Error == "the package was deleted: push the app again" // it pushes faster than it stages
		if b.State != BuildStaged && !gone {
			t.Errorf("build = %+v, want it staged", b)
		}
	}
	if _, err := p.Create("other"); err != nil { // this collects
		t.Fatal(err)
	}
	wholeFiles(t, p.o.Dir, func(sha string) bool { named, err := p.named(sha); return named && err == nil })
	wholeFiles(t, s.dir, func(sha string) bool { ds, err := s.droplets.By("image", sha); return len(ds) > 0 && err == nil })
}

// wholeFiles checks that every tar matches its name and is in use.
func wholeFiles(t *testing.T, dir string, named func(sha string) bool) {
	t.Helper()
	for _, name := range files(t, dir) {
		if strings.HasSuffix(name, pool.IndexEnd) {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sha := nameOfTar(t, raw)
		if name != sha+".tar" || !named(sha) {
			t.Errorf("%s holds %s, named by someone: %t", name, sha, named(sha))
		}
	}
}
