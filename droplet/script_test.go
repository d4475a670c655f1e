package droplet

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dewrun/dew/droplet/stack"
)

// basics are the programs that every stack has.
var basics = []string{"basename", "cat", "chmod", "cp", "cut", "dirname", "env", "find", "grep", "head", "md5sum", "mkdir", "mv", "rm", "sed", "sh", "tar", "tr", "wc"}

// toolbox returns a folder with the basic programs and some others, for PATH. Another
// program can replace a basic one: then there is no link, because writing to a link would
// overwrite the program of the machine.
func toolbox(t *testing.T, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range basics {
		if _, replaced := more[name]; replaced {
			continue
		}
		p, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range more {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("#!/bin/sh\n" + script + "\n")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// scriptRun is the result of the script that runs buildpacks.
type scriptRun struct {
	code   int
	stdout string
	stderr string
	result map[string]string
	top    string // folder in place of /tmp
}

// runScript stages an app with the built-in buildpacks, without a container.
func runScript(t *testing.T, path string, files map[string]string, buildpacks ...string) scriptRun {
	t.Helper()
	return runScriptIn(t, t.TempDir(), path, files, buildpacks...)
}

// runScriptIn does the same with a folder in place of /tmp, which can have a cache.
func runScriptIn(t *testing.T, top, path string, files map[string]string, buildpacks ...string) scriptRun {
	t.Helper()
	testWithBuilds(t, func(t *testing.T, y *testBuilds) {
		y.withBuilder(&fakeBuilder{})
		packs, err := y.builds.o.Catalog.choose(buildpacks, stack.Stack{Name: "host"}, y.builds.packages)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := planTar(packs, stack.Stack{ID: "1"}, len(buildpacks) == 0)
		if err != nil {
			t.Fatal(err)
		}
		untar(t, filepath.Join(top, "buildpacks"), io.NopCloser(bytes.NewReader(plan)))
		for i, h := range packs {
			r, err := h.open()
			if err != nil {
				t.Fatal(err)
			}
			untar(t, filepath.Join(top, "buildpacks", strconv.Itoa(i)), r)
		}
	})
	for name, text := range files {
		writeFile(t, filepath.Join(top, "app", name), text)
	}
	c := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(top, "buildpacks", "stage.sh"), top)
	c.Env = []string{"PATH=" + path, "HOME=" + filepath.Join(top, "home"), "CF_STACK=host"}
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if bad := (*exec.ExitError)(nil); err != nil && !errors.As(err, &bad) {
		t.Fatal(err)
	}
	run := scriptRun{code: c.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), result: map[string]string{}, top: top}
	results, err := filepath.Glob(filepath.Join(top, "result", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range results {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		run.result[filepath.Base(name)] = string(text)
	}
	return run
}

func untar(t *testing.T, dir string, r io.ReadCloser) {
	t.Helper()
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		// Only the PATH of the test must be used.
		writeFile(t, filepath.Join(dir, h.Name), strings.NewReplacer("/usr/local/go/bin:/usr/lib/go/bin", "/nonexistent", "/usr/share/tomcat", "/nonexistent/tomcat").Replace(string(text)))
		if err := os.Chmod(filepath.Join(dir, h.Name), h.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A buildpack reports a missing program once, and prints nothing else.
func TestScriptNamesMissingTools(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		tools map[string]string
		want  string
	}{
		"go":       {map[string]string{"go.mod": "module x\n"}, nil, "Go\ngolang-go\n"},
		"node":     {map[string]string{"package.json": "{}"}, nil, "Node.js\nnodejs\n"},
		"npm":      {map[string]string{"package.json": "{}"}, map[string]string{"node": "echo 1"}, "npm\nnpm\n"},
		"python":   {map[string]string{"requirements.txt": ""}, nil, "Python\npython3\n"},
		"pip":      {map[string]string{"requirements.txt": "flask\n"}, map[string]string{"python3": `[ "$2" != pip ]`}, "pip\npython3-pip\n"},
		"ruby":     {map[string]string{"Gemfile": ""}, nil, "Ruby\nruby\n"},
		"bundler":  {map[string]string{"Gemfile": "gem 'x'\n"}, map[string]string{"ruby": ""}, "Bundler\nruby-bundler\n"},
		"php":      {map[string]string{"index.php": ""}, nil, "PHP\nphp-cli\n"},
		"composer": {map[string]string{"composer.json": "{}"}, map[string]string{"php": "echo 1"}, "Composer\ncomposer\n"},
		"nginx":    {map[string]string{"nginx.conf": ""}, nil, "nginx\nnginx-light\n"},
		"tomcat":   {map[string]string{"WEB-INF/web.xml": ""}, map[string]string{"java": `echo 'openjdk version "17.0.1"'`}, "Tomcat\ntomcat10-user\n"},
		"java":     {map[string]string{"META-INF/MANIFEST.MF": "Main-Class: App\n"}, nil, "Java\ndefault-jre-headless\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runScript(t, toolbox(t, c.tools), c.files)
			if r.code != codeNoCompile || r.result["missing"] != c.want || r.stderr != "" {
				t.Errorf("status %d, missing %q, printed %q, want %d, %q and nothing", r.code, r.result["missing"], r.stderr, codeNoCompile, c.want)
			}
		})
	}
}

// A buildpack that cannot stage an app prints the reason.
func TestScriptRefuses(t *testing.T) {
	php := map[string]string{"php": `[ "$1" = --version ] || exit 2`}
	for name, c := range map[string]struct {
		files map[string]string
		packs []string
		want  string
	}{
		"composer.json": {map[string]string{"composer.json": "no"}, nil, "composer.json is not a JSON object\n"},
		"no jar":        {map[string]string{"App.java": ""}, []string{"java"}, "No jar with a Main-Class in its manifest and no WEB-INF found. Build one, or use another buildpack\n"},
		"file server":   {map[string]string{"Staticfile": ""}, nil, "The file server dew-static is not installed beside dewd. Install dew again, or build it: make build\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runScript(t, toolbox(t, php), c.files, c.packs...)
			if r.code != codeNoCompile || r.result["reason"] != c.want || r.stderr != "" {
				t.Errorf("status %d, reason %q, printed %q, want %q", r.code, r.result["reason"], r.stderr, c.want)
			}
		})
	}
}

// A page is a static site only if no other buildpack detects the app.
func TestScriptDetectsLast(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		detected string
	}{
		"page":              {map[string]string{"index.html": "", "app.js": "", "style.css": ""}, "staticfile\n"},
		"page of node":      {map[string]string{"index.html": "", "package.json": "{}"}, "nodejs\n"},
		"page of php":       {map[string]string{"index.html": "", "index.php": ""}, "php\n"},
		"page and code":     {map[string]string{"index.html": "", "app.py": ""}, ""},
		"page and a server": {map[string]string{"index.html": "", "server.js": ""}, ""},
		"nothing":           {map[string]string{"notes.txt": ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runScript(t, toolbox(t, nil), c.files)
			if r.result["detected"] != c.detected || c.detected == "" && r.code != codeNoApp {
				t.Errorf("status %d, detected %q, want %q", r.code, r.result["detected"], c.detected)
			}
		})
	}
}

// The folders of ten buildpacks and more have two digits, so that they are in order.
func TestScriptNumbersFolders(t *testing.T) {
	packs := []string{RubyBuildpack}
	for n, want := range map[int]string{2: "0 1", 9: "0 8", 10: "00 09", 11: "00 10"} {
		for len(packs) < n {
			packs = append(packs, RubyBuildpack)
		}
		r := runScript(t, toolbox(t, map[string]string{"ruby": "echo 3.1.2"}), map[string]string{"Gemfile": ""}, packs[:n]...)
		dirs, err := filepath.Glob(filepath.Join(r.top, "deps", "*"))
		if err != nil || r.code != 0 || len(dirs) != n {
			t.Fatalf("%d buildpacks: status %d, %q, %v", n, r.code, dirs, err)
		}
		if got := filepath.Base(dirs[0]) + " " + filepath.Base(dirs[n-1]); got != want {
			t.Errorf("%d buildpacks: %s, want %s", n, got, want)
		}
	}
}
