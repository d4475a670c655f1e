package cli

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// folder creates a folder with files by content; a name with / at the end is a folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(root, name)
		dir := filepath.Dir(full)
		if strings.HasSuffix(name, "/") {
			dir = full
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == full || strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(full, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const shopManifest = `applications:
- name: shop
  path: code
  memory: ((size))
  sidecars:
  - name: config server
    process_types: [web]
    command: ./config
    memory: 64M
`

func TestPush(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	size := func(n int) *int { return &n }
	d.sidecars = []v3.Sidecar{{Name: "config server", Command: "./config", MemoryInMB: size(64)}, {Name: "agent", Command: "./agent", MemoryInMB: size(32)}}
	d.routes = []v3.Route{{URL: "shop.dew.localhost"}}
	d.lateLines = []string{"-----> Reading Procfile"}
	root := folder(t, map[string]string{
		"manifest.yml": shopManifest, "code/Procfile": "web: ./shop", "code/lib/a": "aaa", "code/empty": "", "code/tmp/": "",
		"code/.git/config": "x", "code/debug.log": "x", "code/.cfignore": "*.log\n",
	})
	if err := os.Symlink("a", filepath.Join(root, "code/lib/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "code/lib/a"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := d.dew("push", "shop", "-f", root, "--var", "size=256M", "-i", "2", "-c", "./run")
	r.must(t, 0, "-----> Reading Procfile", "~ /applications/0/memory: \"256M\", was \"128M\"", "Uploading 5 of 5 files",
		"256M = web 160M + config server 64M + agent 32M", "config server, running: ./config", "http://shop.dew.localhost:8080")
	if strings.Contains(r.out, "Uploading") || strings.Contains(r.out, "Procfile") {
		t.Errorf("talk is among the data:\n%s", r.out)
	}
	want := map[string]string{
		"Procfile": "-rw-r--r-- web: ./shop", "lib/a": "-rwxr-xr-x aaa", "empty": "-rw-r--r-- ", "tmp/": "drwxr-xr-x ", "lib/link": "Lrwxrwxrwx a",
	}
	if diff := cmp.Diff(want, d.sent); diff != "" {
		t.Errorf("other files were sent (-want +got):\n%s", diff)
	}
	m, _, err := app.ParseManifest([]byte(d.body("POST /v3/spaces/space-1/actions/apply_manifest")), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := m.Applications[0]
	if *got.MemoryMB != 256 || *got.Instances != 2 || *got.Command != "./run" || !got.DefaultRoute || got.Sidecars[0].Name != "config server" {
		t.Errorf("another manifest was applied: %s", d.body("POST /v3/spaces/space-1/actions/apply_manifest"))
	}
	order := []string{
		"POST /v3/spaces/space-1/manifest_diff", "POST /v3/spaces/space-1/actions/apply_manifest", "POST /v3/resource_matches", "POST /v3/packages",
		"POST /v3/packages/package-1/upload", "POST /v3/builds", "PATCH /v3/apps/app-1/relationships/current_droplet", "POST /v3/apps/app-1/actions/restart",
	}
	changes := slices.DeleteFunc(slices.Clone(d.requests), func(a string) bool { return strings.HasPrefix(a, "GET") })
	if diff := cmp.Diff(order, changes); diff != "" {
		t.Errorf("other calls (-want +got):\n%s", diff)
	}
}

// Files that the daemon already has are not sent again.
func TestPushUnchanged(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"Procfile": "web: ./shop", "lib/a": "aaa"})
	d.dew("push", "shop", "--no-manifest", "-p", root).must(t, 0, "Uploading 2 of 2 files")
	if !d.hadBits {
		t.Error("the first push sent no files")
	}
	d.dew("push", "shop", "--no-manifest", "-p", root).must(t, 0, "Nothing to upload: dewd already has all")
	if d.hadBits {
		t.Error("the second push sent files")
	}
	if diff := cmp.Diff(map[string]string{"Procfile": "known 644", "lib/a": "known 644"}, d.sent); diff != "" {
		t.Errorf("other files were named (-want +got):\n%s", diff)
	}
}

// On a terminal, the upload shows its progress, and the bar is removed at the end.
func TestPushDrawsProgress(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	var talk bytes.Buffer
	c := &console.Console{Out: io.Discard, Err: &talk, In: strings.NewReader(""), ErrTerminal: true}
	root := folder(t, map[string]string{"a": strings.Repeat("a", 1<<20)})
	if err := newApp("dev", c).RunContext(t.Context(), []string{"dew", "--run", d.run, "push", "shop", "--no-manifest", "-p", root}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(talk.String(), "% |") {
		t.Errorf("no progress in %q", talk.String())
	}
	if !strings.HasSuffix(talk.String(), "Starting app shop…\n") {
		t.Errorf("the bar stays in %q", talk.String())
	}
}

func TestPushNoStart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("push", "shop", "--no-manifest", "--no-start", "-p", folder(t, map[string]string{"a": "a"})).must(t, 0)
	if d.count("POST /v3/builds") != 0 || d.count("POST /v3/apps/app-1/actions/stop") != 1 {
		t.Errorf("it staged or did not stop: %v", d.requests)
	}
}

func TestPushFails(t *testing.T) {
	why := "NoAppDetectedError - An app was not successfully detected by any available buildpack: Found app.py"
	for name, c := range map[string]struct {
		prepare func(d *fakeDaemon)
		minutes string // start timeout
		args    []string
		status  int
		text    string
	}{
		"staging": {
			prepare: func(d *fakeDaemon) {
				d.lateLines = []string{"-----> Looking"}
				d.outcome = v3.Build{State: v3.BuildFailed, Error: &why}
			},
			status: 3, text: "cannot stage shop: Found app.py",
		},
		"crashed": {
			prepare: func(d *fakeDaemon) {
				d.stats = []v3.InstanceStats{{State: v3.StateCrashed, InstanceGUID: "now"}}
				d.crashes = []v3.Crash{
					{Instance: "now", Description: "APP/PROC/WEB: Exited with status 1", First: v3.CrashExit{Code: 1}},
					{Instance: "before", First: v3.CrashExit{OutOfMemory: true}},
				}
			},
			status: 4, text: "crashed while starting: APP/PROC/WEB: Exited with status 1",
		},
		"memory": {
			prepare: func(d *fakeDaemon) {
				d.stats = []v3.InstanceStats{{State: v3.StateCrashed, InstanceGUID: "now"}}
				d.crashes = []v3.Crash{{Instance: "now", Description: "APP/PROC/WEB: Exited with status 137 (out of memory)", First: v3.CrashExit{OutOfMemory: true}, Verdict: v3.Verdict{Sentence: "web ran out of memory", Advice: "Set `memory: 96M`"}}}
			},
			status: 7, text: "shop crashed while starting: web ran out of memory",
		},
		"record not yet written": {
			prepare: func(d *fakeDaemon) {
				d.stats = []v3.InstanceStats{{State: v3.StateCrashed, InstanceGUID: "now"}}
				d.crashes = []v3.Crash{{Instance: "now", First: v3.CrashExit{OutOfMemory: true}, Verdict: v3.Verdict{Advice: "Set `memory: 96M` for sidecar cache"}}}
				d.unwritten = 2
			},
			status: 7, text: "Set `memory: 96M` for sidecar cache",
		},
		"refused": {
			prepare: func(d *fakeDaemon) {
				d.refuse["POST /v3/apps/app-1/actions/restart"] = v3.Error{Detail: "sidecar 'agent' of process 'web' has no memory value"}
			},
			status: 4, text: "has no memory value",
		},
		"too large": {
			prepare: func(d *fakeDaemon) {
				details := "insufficient resources: memory (the instance can use up to 64M, but this machine has 32M)"
				d.stats = []v3.InstanceStats{{State: v3.StateDown, Details: &details}}
			},
			status: 9, text: "cannot start web: insufficient resources: memory (the instance can use up to 64M",
		},
		"late": {prepare: startsForEver, minutes: "0.001", status: 5, text: "did not start within 60ms"},
		"manifest": {prepare: func(d *fakeDaemon) {
			d.refuse["POST /v3/spaces/space-1/actions/apply_manifest"] = v3.Error{Detail: "memory: 256 bananas"}
		}, status: 1, text: "256 bananas"},
		"no files":      {args: []string{"-p", "/does/not/exist"}, status: 1, text: "no such file"},
		"memory flag":   {args: []string{"-m", "256 bananas"}, status: 2, text: "256 bananas"},
		"two routes":    {args: []string{"--no-route", "--random-route"}, status: 2, text: "cannot be used together"},
		"health":        {args: []string{"-u", "ping"}, status: 2, text: "port, http, process"},
		"two manifests": {args: []string{"-f", "manifest.yml"}, status: 2, text: "cannot be used together"},
		"instances":     {args: []string{"-i", "-1"}, status: 2, text: "less than 0"},
		"timeout":       {args: []string{"-t", "0"}, status: 2, text: "less than 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CF_STARTUP_TIMEOUT", c.minutes)
			d := newDaemon(t)
			if c.prepare != nil {
				c.prepare(d)
			}
			args := append([]string{"push", "shop", "--no-manifest", "-p", folder(t, map[string]string{"a": "a"})}, c.args...)
			d.dew(args...).must(t, c.status, c.text)
		})
	}
}

// If staging failed, the last line of a push is the cause, and no other line repeats
// it.
func TestPushSaysCauseOnce(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"BuildpackCompileFailed - App staging failed in the buildpack compile phase: npm is missing": "npm is missing",
		"BuildpackReleaseFailed - App staging failed in the buildpack release phase: no YAML":        "no YAML",
		"BuildpackCompileFailed - App staging failed: cannot fetch buildpack x - y":                  "cannot fetch buildpack x - y",
		"StagingError - it took longer than 1m":                                                      "it took longer than 1m",
		"Procfile line 3: x - y":                                                                     "Procfile line 3: x - y",
	} {
		d := newDaemon(t)
		d.lateLines = []string{"-----> Installing", "Staging failed: " + text}
		d.outcome = v3.Build{State: v3.BuildFailed, Error: &text}
		r := d.dew("push", "shop", "--no-manifest", "-p", folder(t, map[string]string{"a": "a"}))
		r.must(t, 3, "-----> Installing")
		if last := command.Explain(r.err); last != "cannot stage shop: "+want || strings.Contains(r.talk, want) {
			t.Errorf("%q is reported as:\n%s%s", text, r.talk, last)
		}
	}
}

func TestPushOfDeletedApp(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.buildGone = true
	d.dew("push", "shop", "--no-manifest", "-p", folder(t, map[string]string{"a": "a"})).must(t, 1, "app shop was deleted during staging")
}

func startsForEver(d *fakeDaemon) { d.stats = []v3.InstanceStats{{State: v3.StateStarting}} }

func TestPushNeedsAName(t *testing.T) {
	d := newDaemon(t)
	two := folder(t, map[string]string{"manifest.yml": "applications:\n- name: a\n- name: b\n"})
	d.dew("push", "--no-manifest").must(t, 2, "needs the name of an app")
	d.dew("push", "c", "-f", two).must(t, 2, `no app "c"; its apps: a, b`)
	d.dew("push", "-f", two, "-m", "64M").must(t, 2, "has 2")
	d.dew("push", "-f", filepath.Join(two, "none.yml")).must(t, 2, "cannot find the manifest")
	d.dew("apply-manifest", "-f", folder(t, nil)).must(t, 2, " has no manifest.yml")
}

// The command line can set the name of the only app of a manifest, as in cf.
func TestPushNameless(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": "applications:\n- memory: 64M\n", "a": "a"})
	manifest := filepath.Join(root, "manifest.yml")
	d.dew("push", "shop", "-f", manifest, "-p", root).must(t, 0)
	if got := d.body("POST /v3/spaces/space-1/actions/apply_manifest"); !strings.Contains(got, `"name": "shop"`) || !strings.Contains(got, "64M") {
		t.Errorf("another manifest: %s", got)
	}
	d.dew("push", "-f", manifest).must(t, 1, manifest+":2: applications[0].name: is missing")
}

// Errors of a manifest name the file and the line, even those that the daemon finds.
func TestManifestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"a": "a", "manifest.yml": "applications:\n- name: shop\n  memry: 1M\n  memory: ((size))\n  routes:\n  - route: a.example.com\n"})
	manifest := filepath.Join(root, "manifest.yml")
	push := []string{"push", "-f", manifest, "-p", root, "--var", "size=64M"}
	d.dew(push...).must(t, 0, manifest+`:3: app "shop": memry: is not known and has no effect: did you mean memory?`)
	for _, call := range []string{"manifest_diff", "actions/apply_manifest"} {
		d.refuse["POST /v3/spaces/space-1/"+call] = v3.Error{Detail: "app \"shop\", line 1: memory: too little\napp \"shop\", line 1: routes[0].route: no domain"}
		d.dew(push...).must(t, 1, manifest+":4: app \"shop\": memory: too little\n"+manifest+":6: app \"shop\": routes[0].route: no domain")
		delete(d.refuse, "POST /v3/spaces/space-1/"+call)
	}
	d.refuse["POST /v3/spaces/space-1/actions/apply_manifest"] = v3.Error{Detail: `app "shop", line 1: memory: too little`}
	r := d.dew("push", "shop", "--no-manifest", "-p", root, "-m", "1M")
	r.must(t, 1, `app "shop": memory: too little`)
	if strings.Contains(command.Explain(r.err), "line 1") {
		t.Errorf("it names a line of no file: %v", r.err)
	}
	d.dew("apply-manifest", "-f", manifest, "--vars-file", filepath.Join(folder(t, map[string]string{"vars.yml": "a: 1\nb: [\n"}), "vars.yml")).must(t, 1, "vars.yml:")
}

func TestCreateAppAndApplyManifest(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-app", "shop", "-b", "go_buildpack").must(t, 0, "Created app shop")
	if !strings.Contains(d.body("POST /v3/apps"), `"buildpacks":["go_buildpack"]`) {
		t.Errorf("another body: %s", d.body("POST /v3/apps"))
	}
	d.refuse["POST /v3/apps"] = v3.Error{Detail: "App with the name 'shop' already exists."}
	d.dew("create-app", "shop").must(t, 0, "already exists")
	d.refuse["POST /v3/apps"] = v3.Error{Detail: "name is too long"}
	d.dew("create-app", "shop").must(t, 1, "name is too long")

	root := folder(t, map[string]string{"manifest.yml": shopManifest, "vars.yml": "size: 128M"})
	d.dew("apply-manifest", "-f", root, "--vars-file", filepath.Join(root, "vars.yml")).must(t, 0, "Applied")
	if !strings.Contains(d.body("POST /v3/spaces/space-1/actions/apply_manifest"), "128M") {
		t.Errorf("another manifest: %s", d.body("POST /v3/spaces/space-1/actions/apply_manifest"))
	}
	d.dew("apply-manifest", "-f", root).must(t, 1, "size")
}
