package droplet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reuseCase is an app, the fake tools that install its dependencies, and the installed file.
// The tools print "installing" when they install.
type reuseCase struct {
	files map[string]string
	tools map[string]string
	file  string
}

var reuseCases = map[string]reuseCase{
	"node": {
		files: map[string]string{"package.json": `{"dependencies":{"x":"1"}}`, "package-lock.json": "{}"},
		tools: map[string]string{
			"node": `if [ "$1" = -p ]; then echo 1; else echo v20.0.0; fi`,
			"npm":  `echo installing; mkdir -p node_modules/x; echo installed >node_modules/x/index.js; [ ! -f fail ]`,
		},
		file: "app/node_modules/x/index.js",
	},
	"python": {
		files: map[string]string{"requirements.txt": "x==1\n"},
		tools: map[string]string{"python3": `case "$*" in
*"pip install"*) echo installing; mkdir -p "$9"; echo installed >"$9/x.py"; [ ! -f fail ] ;;
*) echo Python 3.11.2 ;;
esac`},
		file: "deps/0/python/x.py",
	},
	"ruby": {
		files: map[string]string{"Gemfile": "gem 'x'\n", "Gemfile.lock": "GEM\n  specs:\n    x (1)\n"},
		tools: map[string]string{
			"ruby": `echo ruby 3.1.2`,
			"bundle": `case $1 in
check) [ -f vendor/bundle/x.rb ] ;;
install) echo installing; mkdir -p vendor/bundle; echo installed >vendor/bundle/x.rb; [ ! -f fail ] ;;
esac`,
		},
		file: "app/vendor/bundle/x.rb",
	},
}

// reuseBuild stages the app with the cache of an earlier build, if any. key is the key of
// its dependencies.
func (c reuseCase) build(t *testing.T, cache, key string, more map[string]string, packs ...string) scriptRun {
	t.Helper()
	top := t.TempDir()
	if cache != "" {
		if err := os.CopyFS(filepath.Join(top, "cache"), os.DirFS(cache)); err != nil {
			t.Fatal(err)
		}
	}
	helper := filepath.Join(top, "buildpacks", helperProgram)
	writeFile(t, helper, "#!/bin/sh\n[ \"$1\" != dependencies ] || printf '%s' '"+key+"'\n")
	if err := os.Chmod(helper, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, from := range []map[string]string{c.files, more} {
		for name, text := range from {
			files[name] = text
		}
	}
	return runScriptIn(t, top, toolbox(t, c.tools), files, packs...)
}

// wantBuild checks what a build did.
func (c reuseCase) wantBuild(t *testing.T, what string, r scriptRun, installs bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.top, c.file))
	if err != nil || string(text) != "installed\n" || r.code != 0 {
		t.Errorf("%s: status %d, dependency %q, %v, want it there\n%s%s", what, r.code, text, err, r.stdout, r.stderr)
	}
	if got := strings.Contains(r.stdout, "installing"); got != installs {
		t.Errorf("%s: installs = %v, want %v\n%s", what, got, installs, r.stdout)
	}
	if got := strings.Contains(r.stdout, "Using the dependencies of the last build"); got == installs {
		t.Errorf("%s: it says that it reuses dependencies = %v\n%s", what, got, r.stdout)
	}
	if got := r.result["cache-unchanged"] != ""; got == installs {
		t.Errorf("%s: cache unchanged = %v, want %v", what, got, !installs)
	}
}

// A build installs nothing if the key of its dependencies is that of the last build. It
// installs them with another key, without a key, and if the stored copy is damaged.
func TestScriptReusesDependencies(t *testing.T) {
	for name, c := range reuseCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := c.build(t, "", "one", nil)
			c.wantBuild(t, "first build", first, true)
			cache := filepath.Join(first.top, "cache")
			again := c.build(t, cache, "one", nil)
			c.wantBuild(t, "same key", again, false)
			c.wantBuild(t, "same key a second time", c.build(t, filepath.Join(again.top, "cache"), "one", nil), false)
			c.wantBuild(t, "another key", c.build(t, cache, "two", nil), true)
			unknown := c.build(t, cache, "", nil)
			c.wantBuild(t, "no key", unknown, true)
			if left := stored(t, unknown); len(left) != 0 {
				t.Errorf("no key: the cache has %q", left)
			}
			for _, file := range stored(t, first) {
				if filepath.Ext(file) == ".tar" {
					if err := os.Truncate(file, 100); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.wantBuild(t, "damaged copy", c.build(t, cache, "one", nil), true)
		})
	}
}

// A failed installation leaves nothing that a later build could use.
func TestScriptForgetsFailedInstall(t *testing.T) {
	for name, c := range reuseCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := c.build(t, "", "one", nil)
			failed := c.build(t, filepath.Join(first.top, "cache"), "two", map[string]string{"fail": ""})
			if failed.code != codeNoCompile {
				t.Errorf("status %d, want %d\n%s", failed.code, codeNoCompile, failed.stdout)
			}
			if left := stored(t, failed); len(left) != 0 {
				t.Errorf("the cache has %q", left)
			}
			c.wantBuild(t, "next build", c.build(t, filepath.Join(failed.top, "cache"), "two", nil), true)
		})
	}
}

// The files of an earlier buildpack can affect an installation, so dependencies are
// installed again if there are any.
func TestScriptInstallsAfterOtherBuildpacks(t *testing.T) {
	for name, c := range map[string]reuseCase{NodeBuildpack: reuseCases["node"], PythonBuildpack: reuseCases["python"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.file = strings.Replace(c.file, "deps/0", "deps/1", 1)
			first := c.build(t, "", "one", nil, RubyBuildpack, name)
			cache := filepath.Join(first.top, "cache")
			c.wantBuild(t, "after a buildpack without files", c.build(t, cache, "one", nil, RubyBuildpack, name), false)
			with := c.build(t, cache, "one", map[string]string{"../deps/0/lib/x": "x"}, RubyBuildpack, name)
			c.wantBuild(t, "after a buildpack with files", with, true)
		})
	}
}

// Ruby gems of the last build stay even if Bundler must install others.
func TestScriptKeepsGems(t *testing.T) {
	c := reuseCases["ruby"]
	first := c.build(t, "", "one", nil)
	c.tools = map[string]string{"ruby": "echo ruby 3.1.2", "bundle": `case $1 in check) exit 1 ;; install) echo installing; [ -f vendor/bundle/x.rb ] ;; esac`}
	c.wantBuild(t, "missing gems", c.build(t, filepath.Join(first.top, "cache"), "one", nil), true)
}

// Bundler does not download the version that Gemfile.lock names.
func TestScriptUsesInstalledBundler(t *testing.T) {
	tools := map[string]string{
		"ruby":   "echo ruby 3.1.2",
		"gem":    `[ "$*" = "list --installed --exact bundler --version 2.2.0" ]`,
		"bundle": `case $1 in --version) echo Bundler version 2.3.15 ;; *) echo "with ${BUNDLER_VERSION:-any}" ;; esac`,
	}
	for locked, want := range map[string]string{"2.6.1": "with 2.3.15", "2.3.15": "with any", "2.2.0": "with any", "": "with any"} {
		lock := "GEM\n  specs:\n    x (1)\n"
		if locked != "" {
			lock += "\nBUNDLED WITH\n   " + locked + "\n"
		}
		r := runScript(t, toolbox(t, tools), map[string]string{"Gemfile": "gem 'x'\n", "Gemfile.lock": lock})
		if r.code != 0 || !strings.Contains(r.stdout, want+"\n") {
			t.Errorf("lock file of %q: status %d, want %q\n%s%s", locked, r.code, want, r.stdout, r.stderr)
		}
	}
}

// The script says that the cache is unchanged only if it can compare all files.
func TestScriptComparesCache(t *testing.T) {
	c := reuseCases["node"]
	c.files = map[string]string{"package.json": "{}"}
	c.tools = map[string]string{"node": "echo 0"}
	first := c.build(t, "", "", nil)
	if r := c.build(t, filepath.Join(first.top, "cache"), "", nil); r.code != 0 || r.result["cache-unchanged"] == "" {
		t.Errorf("same cache: status %d, results %q", r.code, r.result)
	}
	for name, change := range map[string]string{
		"new file": "echo x >$f.new", "same size": "echo y >$f", "same size and time": "touch -r $f $HOME/tmp/as; echo y >$f; touch -r $HOME/tmp/as $f",
		"mode": "chmod 600 $f", "removed": "rm $f",
	} {
		top := t.TempDir()
		file := filepath.Join(top, "cache", "x")
		writeFile(t, file, "x\n")
		path := toolbox(t, map[string]string{"node": "f=" + file + "; if [ -f $f ] && [ \"$1\" = -p ]; then " + change + "; fi >&2; echo 0"})
		if err := os.Symlink("/usr/bin/touch", filepath.Join(path, "touch")); err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(top, "cache")
		if err := os.CopyFS(own, os.DirFS(filepath.Join(first.top, "cache"))); err != nil {
			t.Fatal(err)
		}
		if r := runScriptIn(t, top, path, c.files); r.code != 0 || r.result["cache-unchanged"] != "" || r.stderr != "" {
			t.Errorf("%s: status %d, results %q, %s", name, r.code, r.result, r.stderr)
		}
	}
	c.tools["find"] = "exit 1"
	if r := c.build(t, filepath.Join(first.top, "cache"), "", nil); r.code != 0 || r.result["cache-unchanged"] != "" {
		t.Errorf("without find: status %d, results %q", r.code, r.result)
	}
}

// stored returns the stored dependencies in the cache of a build.
func stored(t *testing.T, r scriptRun) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.top, "cache", "*", "dependencies.*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// dewd does not store a cache again that a build left unchanged, unless the cache was
// cleared since.
func TestUnchangedCacheIsNotStored(t *testing.T) {
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		f := &fakeBuilder{files: map[string]string{"/tmp/app/x": "x", "/tmp/cache/x": "one", "/tmp/result/cache-unchanged": "yes\n"}}
		y.withBuilder(f)
		y.run()
		stage := func(text string) string {
			t.Helper()
			y.droplet(y.build(BuildRequest{Package: y.push("a", member{name: "go.mod", text: text}).GUID, Buildpacks: []string{"go"}}))
			r, err := os.Open(y.builds.caches.File("a"))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			untar(t, dir, r)
			kept, err := os.ReadFile(filepath.Join(dir, "x"))
			if err != nil {
				t.Fatal(err)
			}
			return string(kept)
		}
		got := []string{stage("module a")} // there was no cache
		f.files["/tmp/cache/x"] = "two"
		got = append(got, stage("module b"))
		delete(f.files, "/tmp/result/cache-unchanged")
		got = append(got, stage("module c"))
		f.files["/tmp/cache/x"], f.files["/tmp/result/cache-unchanged"] = "three", "yes\n"
		if err := y.builds.caches.ClearOf("a"); err != nil {
			t.Fatal(err)
		}
		got = append(got, stage("module d"))
		if diff := cmp.Diff([]string{"one", "one", "two", "three"}, got); diff != "" {
			t.Error(diff)
		}
	})
}
