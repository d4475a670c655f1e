package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/smoketest"
	"github.com/dewrun/dew/smoke"
)

const (
	builtManifest = "applications:\n- name: shop\n  path: out\n"
	buildStep     = "build: |\n  # the app\n  mkdir -p out\n  echo compiling >&2; cat source | tee out/a\n"
)

// A push runs the commands of a build step only with --build.
func TestPushBuilds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": builtManifest, "smoke.yml": buildStep, "source": "one"})
	d.dew("push", "-f", root).must(t, 1, "out does not exist", "dew push --build (runs: mkdir -p out; echo compiling >&2; cat source | tee out/a)")
	if _, err := os.Stat(filepath.Join(root, "out")); err == nil || len(d.requests) > 0 {
		t.Errorf("something was built, or sent: %v", d.requests)
	}
	d.dew("push", "-f", root, "--watch").must(t, 1, "out does not exist", "dew push --build")
	r := d.dew("push", "-f", root, "--build")
	r.must(t, 0, "   $ mkdir -p out\n", "   compiling\n", "   one\n", "Starting app shop")
	if diff := cmp.Diff(map[string]string{"a": "-rw-r--r-- one"}, d.sent); diff != "" {
		t.Error(diff)
	}
}

func TestPushBuildFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		smoke  string // empty: no smoke.yml
		args   []string
		status int
		text   string
	}{
		"the build": {smoke: "build: echo oops; exit 3", status: 1, text: "   oops\nbuild failed: the script failed: exit status 3\n"},
		"no result": {smoke: "build: 'true'", status: 1, text: "manifest.yml, line 3: path: the build did not create out"},
		"no file":   {status: 2, text: "smoke.yml does not exist\n     Add the commands"},
		"no build":  {smoke: "checks: []", status: 2, text: "smoke.yml has no key build"},
		"bad file":  {smoke: "bild: x", status: 2, text: "bild"},
		"droplet":   {smoke: buildStep, args: []string{"--droplet", "x"}, status: 2, text: "--build cannot be used with --droplet or --docker-image"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			files := map[string]string{"manifest.yml": builtManifest}
			if c.smoke != "" {
				files["smoke.yml"] = c.smoke
			}
			d.dew(append([]string{"push", "-f", folder(t, files), "--build"}, c.args...)...).must(t, c.status, c.text)
			if len(d.requests) > 0 {
				t.Errorf("the daemon was asked: %v", d.requests)
			}
		})
	}
}

// A smoke test has already run the build, so the error does not suggest it.
func TestSmokePushWithoutTheResult(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": builtManifest, "smoke.yml": "build: 'true'"})
	api, err := client.New(client.Options{Run: d.run})
	if err != nil {
		t.Fatal(err)
	}
	v := &smoketest.Verbs{Client: api, Out: quiet()}
	err = v.Push(t.Context(), smoke.Push{Manifest: filepath.Join(root, "manifest.yml"), Dir: root})
	if err == nil || !strings.Contains(err.Error(), "the build did not create out") {
		t.Errorf("push = %v", err)
	}
}

// Without a build step, the error for a missing path names its line.
func TestPushMissingPath(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": builtManifest})
	d.dew("push", "-f", root).must(t, 1, "manifest.yml, line 3: path: cannot find the app's files: stat ", "Build the app first")
	d.dew("push", "-f", root, "-p", "none").must(t, 1, "-p: cannot find the app's files: stat none")
}

// With --watch, a changed source is built before the next push. After a failed build,
// the push waits for the next change.
func TestPushBuildWatch(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": builtManifest, "smoke.yml": "build: mkdir -p out; grep -v bad source > out/a", "source": "one"})
	ctx, stop := context.WithCancel(t.Context())
	talk := &channelWriter{lines: make(chan string, 1000)}
	ended := make(chan error, 1)
	go func() {
		c := &console.Console{Out: io.Discard, Err: talk, In: strings.NewReader("")}
		ended <- newApp("dev", c).RunContext(ctx, []string{"dew", "--run", d.run, "push", "-f", root, "--build", "--watch"})
	}()
	for _, step := range []struct{ text, want string }{{"", "Starting app shop"}, {"bad", "build failed"}, {"two", "Starting app shop"}} {
		if step.text != "" {
			replace(t, filepath.Join(root, "source"), step.text)
		}
		talk.until(t, step.want)
		talk.until(t, "Watching for changes")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end = %v", err)
	}
	if got := d.sent["a"]; !strings.HasSuffix(got, "two\n") {
		t.Errorf("a was sent as %q", got)
	}
}
