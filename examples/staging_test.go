//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// waitForPage waits until an app responds.
func waitForPage(t *testing.T, host, path, want string) {
	t.Helper()
	eventually(t, host+path, func() error {
		if p := get(t, host, path); p.status != 200 || p.body != want {
			return fmt.Errorf("answer %d %q, want %q", p.status, p.body, want)
		}
		return nil
	})
}

// command runs a program that the tests need.
func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v (make setup-test installs what is missing)\n%s", name, args, err, out)
	}
}

// write creates a file with its folders.
func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// stagingLines returns the lines that staging has printed.
func stagingLines(t *testing.T, app string) (lines []string) {
	t.Helper()
	for _, l := range logsOf(t, app) {
		if l.Source == "STG" {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

func wantLine(t *testing.T, lines []string, pattern string) {
	t.Helper()
	if !slices.ContainsFunc(lines, regexp.MustCompile(pattern).MatchString) {
		t.Errorf("no line matches %s:\n%s", pattern, strings.Join(lines, "\n"))
	}
}

// The last line of a failed push is the cause: the file to add, the error that a tool
// printed, or the missing start command. An index.html alone is a static site.
func TestPushErrors(t *testing.T) {
	const name = "newcomer"
	deleteLater(t, name)
	push := func(files map[string]string) result {
		dir := t.TempDir()
		for file, text := range files {
			write(t, filepath.Join(dir, file), text, 0o644)
		}
		return dewd.dew("", "push", name, "-p", dir, "-m", "32M")
	}
	for want, files := range map[string]map[string]string{
		"Found app.py, but no requirements.txt. Add requirements.txt (it can be empty) and a Procfile with the line `web: python3 app.py`": {"app.py": "print(1)"},
		"SyntaxError: Error parsing package.json: ": {"package.json": "{"},
	} {
		r := push(files)
		if last := r.err[strings.LastIndex(strings.TrimSpace(r.err), "\n")+1:]; r.code != 3 || !strings.HasPrefix(last, "dew: cannot stage "+name+": "+want) {
			t.Errorf("status %d, want 3 and %s as the last line:\n%s", r.code, want, r.err)
		}
	}
	r := push(map[string]string{"requirements.txt": "", "app.py": ""})
	if r.code != 4 || !strings.Contains(r.err, "No start command found") || len(read[[]any](t, "crashes", name, "--json")) != 0 {
		t.Errorf("status %d, want 4 without a crash:\n%s", r.code, r.err)
	}
	if r := push(map[string]string{"index.html": "a page\n"}); r.code != 0 {
		t.Fatalf("status %d:\n%s", r.code, r.err)
	}
	waitForPage(t, name, "/", "a page\n")
}

// A version that the stack does not have fails the push with the file and its line. A
// version that Cloud Foundry ignores, or that cannot be read, is a warning in the log.
func TestVersionHints(t *testing.T) {
	const name = "versions"
	deleteLater(t, name)
	push := func(files map[string]string) result {
		dir := t.TempDir()
		for file, text := range files {
			write(t, filepath.Join(dir, file), text, 0o644)
		}
		return dewd.dew("", "push", name, "-p", dir, "-m", "32M", "-u", "process", "--no-route", "-c", "sleep 1000")
	}
	const end = ` asks for [A-Z].* 99.*, but this machine has [0-9.]+\. Install that version, change the version.*, or use another stack or an image$`
	for want, files := range map[string]map[string]string{
		`package\.json line 2 \(engines\.node\)`: {"package.json": "{\n\"engines\": {\"node\": \"99.x\"}}"},
		`Gemfile line 1`:                         {"Gemfile": "ruby '~> 99.0'\n"},
		`runtime\.txt line 1`:                    {"runtime.txt": "python-99.1.x\n", "requirements.txt": ""},
	} {
		r := push(files)
		if r.code != 3 || !regexp.MustCompile(`(?m)^dew: cannot stage `+name+`: `+want+end).MatchString(r.err) {
			t.Errorf("status %d, want 3 and %s:\n%s", r.code, want, r.err)
		}
	}
	if r := push(map[string]string{"Gemfile": "ruby '>= 2.0', '< 99'\n", ".ruby-version": "the newest\n"}); r.code != 0 {
		t.Fatalf("status %d:\n%s", r.code, r.err)
	}
	wantLine(t, stagingLines(t, name), `^ +Ruby [0-9.]+ satisfies >= 2\.0, < 99 \(Gemfile line 1\)$`)
	wantLine(t, stagingLines(t, name), `^ +WARNING: Cannot compare the Ruby version in \.ruby-version line 1: "the newest" is not a version$`)
}

// A war runs in the Tomcat of the stack at the path /, with the JVM's memory computed. If
// it cannot start, the instance crashes.
func TestWar(t *testing.T) {
	const name = "shop"
	deleteLater(t, name)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "index.jsp"), `<% System.out.println("the page ran"); %>path <%= application.getContextPath() + "/" + 6 * 7 %>`, 0o644)
	write(t, filepath.Join(dir, "META-INF", "MANIFEST.MF"), "Manifest-Version: 1.0\n", 0o644)
	const head = "<web-app xmlns='https://jakarta.ee/xml/ns/jakartaee' version='6.0'>"
	write(t, filepath.Join(dir, "WEB-INF", "web.xml"), head+"<listener><listener-class>no.Such</listener-class></listener></web-app>", 0o644)
	push := []string{"push", name, "-m", "256M", "-p"}
	if r := dewd.dew("", append(push, dir)...); r.code != 4 || !strings.Contains(r.err, "The web app could not start") {
		t.Errorf("a web app that fails: status %d, want 4:\n%s", r.code, r.err)
	}
	write(t, filepath.Join(dir, "WEB-INF", "web.xml"), head+"</web-app>", 0o644)
	war := filepath.Join(t.TempDir(), "shop.war")
	command(t, dir, "zip", "-q", "-r", war, ".")
	dew(t, "", append(push, war)...)
	waitForPage(t, name, "/", "path /42")
	if p := get(t, name, "/WEB-INF/web.xml"); p.status != 404 {
		t.Errorf("WEB-INF is visible: %d %s", p.status, p.body)
	}
	eventually(t, "the lines of Tomcat", func() error {
		var heap, page, tomcat bool
		for _, l := range logsOf(t, name) {
			out := l.Source == "APP/PROC/WEB" && l.Stream == "OUT"
			heap = heap || out && heapFlag.MatchString(l.Text)
			page = page || out && l.Text == "the page ran"
			tomcat = tomcat || out && strings.Contains(l.Text, "Catalina.start Server startup in")
		}
		if !heap || !page || !tomcat {
			return fmt.Errorf("heap %t, page %t, Tomcat %t, want all on stdout", heap, page, tomcat)
		}
		return nil
	})
}

// An app with an nginx.conf runs in the nginx of the stack, with its templates filled in
// and its log in that of the app. A wrong configuration fails the push.
func TestNginx(t *testing.T) {
	const name = "proxied"
	deleteLater(t, name)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "public", "index.html"), "a page\n", 0o644)
	write(t, filepath.Join(dir, "conf", "site.conf"), "server {\n  listen {{port}};\n  root public;\n"+
		"  location = /name { default_type text/plain; return 200 \"{{env \"NAME\"}}\\n\"; }\n}\n", 0o644)
	write(t, filepath.Join(dir, "manifest.yml"), "applications:\n- {name: proxied, memory: 32M, env: {NAME: a name}}\n", 0o644)
	const head = "error_log stderr notice;\nevents {}\nhttp {\n  log_format short 'nginx: $request $status';\n  access_log /dev/stdout short;\n"
	for bad, want := range map[string]string{
		head + "  server { listen 8080; }\n}\n":                "nginx.conf line 6: `listen 8080` does not use the port of the app. Write `listen {{port}};`",
		head + "  include conf/site.conf;\n  no_such on;\n}\n": `nginx.conf line 7: unknown directive "no_such"`,
		head + "  include conf/none.conf;\n}\n":                "nginx.conf line 6: cannot include conf/none.conf: the file does not exist",
		"{{prot}}\n":                                           `nginx.conf line 1: cannot fill in the template: function "prot" not defined`,
	} {
		write(t, filepath.Join(dir, "nginx.conf"), bad, 0o644)
		if r := dewd.dew(dir, "push"); r.code != 3 || !strings.Contains(r.err, "dew: cannot stage "+name+": "+want) {
			t.Errorf("status %d, want 3 and %s:\n%s", r.code, want, r.err)
		}
	}
	write(t, filepath.Join(dir, "nginx.conf"), head+"  include conf/site.conf;\n}\n", 0o644)
	dew(t, dir, "push")
	waitForPage(t, name, "/", "a page\n")
	waitForPage(t, name, "/name", "a name\n")
	eventually(t, "the lines of nginx", func() error {
		want := map[string]bool{"OUT nginx: GET /name HTTP/1.1 200": true}
		start := false
		for _, l := range logsOf(t, name) {
			delete(want, l.Stream+" "+l.Text)
			start = start || l.Stream == "ERR" && strings.Contains(l.Text, "start worker process")
		}
		if len(want) > 0 || !start {
			return fmt.Errorf("missing: %v; its start on stderr: %t", want, start)
		}
		return nil
	})
}

// A restage replaces the instance. An unchanged push stages nothing.
func TestRestage(t *testing.T) {
	const name, want = "hello-node", "hello from Node.js in production\n"
	deleteLater(t, name)
	dew(t, name, "push")
	waitForPage(t, name, "/", want)
	old := running(t, name, "web", 1)[0]
	dew(t, "", "restage", name)
	if now := running(t, name, "web", 1)[0]; now == old {
		t.Error("restage left the old instance")
	}
	waitForPage(t, name, "/", want)
	if again := dew(t, name, "push"); !strings.Contains(again.err, "Nothing has changed") {
		t.Errorf("an unchanged push was staged again:\n%s", again.err)
	}
}

// jar is the example with its jar, built once.
var jar struct {
	once sync.Once
	dir  string
}

// threadDumpJar returns the example with its jar, which contains the sidecar.
func threadDumpJar(t *testing.T) string {
	t.Helper()
	jar.once.Do(func() {
		dir := filepath.Join(dewd.dir, "jar")
		for _, name := range []string{"manifest.yml", "manifest-without-memory.yml", "src/App.java"} {
			b, err := os.ReadFile(filepath.Join("java-threaddump", name))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), string(b), 0o644)
		}
		command(t, "", "go", "build", "-trimpath", "-o", filepath.Join(dir, "build")+"/", "./java-threaddump/debug")
		command(t, dir, "javac", "-d", "build/classes", "src/App.java")
		command(t, dir, "jar", "--create", "--file", "build/app.jar", "--main-class", "App", "-C", "build/classes", ".")
		command(t, filepath.Join(dir, "build"), "zip", "-q", "app.jar", "-u", "debug")
		jar.dir = dir
	})
	if jar.dir == "" {
		t.Fatal("the jar could not be made")
	}
	return jar.dir
}

var heapFlag = regexp.MustCompile(`-Xmx([0-9]+)m`)

// The memory of the sidecar is subtracted from that of the JVM. The heap is computed at
// every start, so it follows the memory.
func TestJavaMemory(t *testing.T) {
	const name = "java-threaddump"
	deleteLater(t, name)
	dew(t, threadDumpJar(t), "push")
	waitForPage(t, name, "/heap", "438\n")
	if sum := read[appView](t, "app", name, "--json").Processes[0].MemorySum; sum != "1G = web 768M + debug 256M" {
		t.Errorf("memory %q", sum)
	}
	limits := limitsOf(t, running(t, name, "web", 1)[0])
	if want := map[string]int64{"main": 768 << 20, "sidecar-0": 256 << 20}; limits["main"] != want["main"] || limits["sidecar-0"] != want["sidecar-0"] {
		t.Errorf("limits %v, want %v", limits, want)
	}

	dew(t, "", "scale", name, "-m", "768M", "-f")
	eventually(t, "a smaller heap", func() error {
		for _, l := range slices.Backward(logsOf(t, name)) {
			if m := heapFlag.FindStringSubmatch(l.Text); m != nil && l.Source == "APP/PROC/WEB" {
				if m[1] == "288" { // of 512M
					return nil
				}
				return fmt.Errorf("heap %sM, want 288", m[1])
			}
		}
		return fmt.Errorf("nothing was printed")
	})
}

// limitsOf reads the memory limits of an instance's leaves.
func limitsOf(t *testing.T, instance string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, pattern := range []string{"/sys/fs/cgroup/memory/*/%s/*/memory.limit_in_bytes", "/sys/fs/cgroup/*/%s/*/memory.max"} {
		files, err := filepath.Glob(fmt.Sprintf(pattern, instance))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var n int64
			if _, err := fmt.Sscan(string(b), &n); err == nil {
				out[filepath.Base(filepath.Dir(f))] = n
			}
		}
	}
	return out
}

// A sidecar without a memory value is refused with a JVM, and with the droplet of a
// custom buildpack. With any other app it is allowed.
func TestSidecarMustHaveMemory(t *testing.T) {
	const name = "java-threaddump"
	const want = "sidecar 'debug' of process 'web' has no memory value: set applications[].sidecars[].memory"
	dir := threadDumpJar(t)
	deleteLater(t, name)
	r := dewd.dew(dir, "push", "-f", "manifest-without-memory.yml")
	if r.code != 4 || !strings.Contains(r.err, want) {
		t.Errorf("status %d, want 4 and the rule:\n%s", r.code, r.err)
	}
	count := 0
	for _, l := range logsOf(t, name) {
		if l.Source == "API" && l.Stream == "ERR" && strings.Contains(l.Text, want) {
			count++
		}
		if l.Source == "CELL" {
			t.Errorf("a container was made: %s", l.Text)
		}
	}
	if count != 1 {
		t.Errorf("%d lines in the log say so, want one", count)
	}
	if r := dewd.dew("", "start", name); r.code != 4 {
		t.Errorf("start: status %d, want 4\n%s", r.code, r.err)
	}

	pack := buildpack(t, map[string]string{"detect": "exit 0", "compile": "exit 0", "release": "echo 'default_process_types: {web: sleep 1000}'"})
	small := t.TempDir()
	write(t, filepath.Join(small, "x"), "x", 0o644)
	write(t, filepath.Join(small, "manifest.yml"), `applications:
- name: custom
  memory: 64M
  health-check-type: process
  no-route: true
  sidecars:
  - {name: debug, process_types: [web], command: sleep 1000}
`, 0o644)
	deleteLater(t, "custom")
	if r := dewd.dew(small, "push", "-b", pack); r.code != 4 || !strings.Contains(r.err, want) {
		t.Errorf("custom buildpack: status %d, want 4 and the rule:\n%s", r.code, r.err)
	}
	dew(t, small, "push", "-b", "binary_buildpack", "-c", "sleep 1000")
	running(t, "custom", "web", 1)
}

// buildpack creates a folder of scripts that only its owner can enter, so dew must
// upload it.
func buildpack(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pack")
	for name, text := range scripts {
		write(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n"+text+"\n", 0o755)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A buildpack is created, detected, keeps its cache, is changed, disabled and deleted.
// Its phases fail with Cloud Foundry's messages.
func TestBuildpackLife(t *testing.T) {
	const name, pack = "mine", "my_buildpack"
	scripts := map[string]string{
		"detect":  `[ -f "$1/mine.txt" ] && echo "mine 1.0"`,
		"compile": `n=$(cat "$2/count" 2>/dev/null || echo 0); echo $((n + 1)) >"$2/count"; echo "built $n times before in $CF_STACK as $(id -un)"; mkdir -p "$1/.profile.d"; echo 'export FROM_PACK=yes' >"$1/.profile.d/x.sh"`,
		"release": `echo "default_process_types: {web: 'echo \"from pack: \$FROM_PACK\"; sleep 1000'}"`,
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mine.txt"), "x", 0o644)
	push := []string{"push", name, "-p", dir, "-m", "32M", "-u", "process", "--no-route"}
	fails := func(kind, cause string) {
		t.Helper()
		r := dewd.dew("", "restage", name)
		if r.code != 3 || !regexp.MustCompile(`(?m)^dew: cannot stage `+name+`: `+cause).MatchString(r.err) {
			t.Errorf("%s: status %d, want 3 and %s:\n%s", kind, r.code, cause, r.err)
		}
		wantLine(t, stagingLines(t, name), `^Staging failed: `+kind+` - .*`+cause)
	}
	change := func(phase, text string) {
		t.Helper()
		scripts[phase] = text
		dew(t, "", "update-buildpack", pack, "-p", buildpack(t, scripts))
	}
	t.Cleanup(func() { dewd.dew("", "delete-buildpack", pack, "-f") })
	dew(t, "", "create-buildpack", pack, buildpack(t, scripts), "1")
	deleteLater(t, name)
	dew(t, "", push...)
	wantLine(t, stagingLines(t, name), `^built 0 times before in host as vcap$`)
	eventually(t, "the command of the buildpack", func() error {
		for _, l := range logsOf(t, name) {
			if l.Text == "from pack: yes" && l.Source == "APP/PROC/WEB" {
				return nil
			}
		}
		return fmt.Errorf("it has printed nothing")
	})
	droplet := read[struct {
		Buildpacks []struct {
			Name         string
			DetectOutput string `json:"detect_output"`
		}
	}](t, "curl", "/v3/apps/"+guidOf(t, name)+"/droplets/current")
	if len(droplet.Buildpacks) != 1 || droplet.Buildpacks[0].Name != pack || droplet.Buildpacks[0].DetectOutput != "mine 1.0" {
		t.Errorf("droplet made by %+v", droplet.Buildpacks)
	}
	dew(t, "", "restage", name)
	wantLine(t, stagingLines(t, name), `^built 1 times before`)

	change("compile", "echo broken; exit 9")
	fails("BuildpackCompileFailed", `buildpack .*: bin/compile exited with status 9`)
	wantLine(t, stagingLines(t, name), `^broken$`)
	change("compile", "exit 0")
	change("release", "exit 8")
	fails("BuildpackReleaseFailed", `buildpack .*: bin/release exited with status 8`)
	change("release", "echo '{'")
	fails("BuildpackReleaseFailed", `cannot parse the output of bin/release: .*is not YAML`)
	dew(t, "", "update-buildpack", pack, "--disable")
	fails("NoAppDetectedError", `Found no go.mod`)
	dew(t, "", "delete-buildpack", pack, "-f")
	if out := dew(t, "", "buildpacks").out; strings.Contains(out, pack) {
		t.Errorf("it is still there:\n%s", out)
	}
	if r := dewd.dew("", append(slices.Clone(push), "-b", pack)...); r.code == 0 || !strings.Contains(r.err, "because it does not exist") {
		t.Errorf("a deleted buildpack was used: status %d\n%s", r.code, r.err)
	}
}

// Several buildpacks run in order. The first supplies files that the last one and the
// app use. launch.yml adds a sidecar, and the user's own sidecar takes precedence.
func TestSeveralBuildpacks(t *testing.T) {
	const name = "several"
	first := buildpack(t, map[string]string{
		"supply": `set -e
mkdir -p "$3/$4/bin"; printf '#!/bin/sh\necho "tool of buildpack %s"\n' "$4" >"$3/$4/bin/tool"; chmod +x "$3/$4/bin/tool"
cat >"$3/$4/launch.yml" <<'END'
processes:
- type: agent
  command: tool; sleep 1000
  limits: {memory: 16}
  platforms: {cloudfoundry: {sidecar_for: [web]}}
- type: mine
  command: echo the buildpack; sleep 1000
  limits: {memory: 16}
  platforms: {cloudfoundry: {sidecar_for: [web]}}
- type: worker
  command: sleep 1000
END`,
	})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Procfile"), "web: tool; sleep 1000\n", 0o644)
	write(t, filepath.Join(dir, "manifest.yml"), `applications:
- name: several
  memory: 128M
  no-route: true
  health-check-type: process
  sidecars:
  - {name: MINE, process_types: [web], command: "echo the user; sleep 1000", memory: 16M}
`, 0o644)
	deleteLater(t, name)
	dew(t, dir, "push", "-b", first, "-b", "binary_buildpack")
	running(t, name, "web", 1)
	want := map[string]bool{
		"APP/PROC/WEB tool of buildpack 0": true, "APP/PROC/WEB/SIDECAR/AGENT tool of buildpack 0": true, "APP/PROC/WEB/SIDECAR/MINE the user": true,
	}
	eventually(t, "the lines of all processes", func() error {
		for _, l := range logsOf(t, name) {
			delete(want, l.Source+" "+l.Text)
		}
		if len(want) > 0 {
			return fmt.Errorf("missing: %v", want)
		}
		return nil
	})
	sidecars := read[struct {
		Resources []struct{ Name, Origin string }
	}](t, "curl", "/v3/apps/"+guidOf(t, name)+"/sidecars")
	var got []string
	for _, s := range sidecars.Resources {
		got = append(got, s.Name+" "+s.Origin)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"MINE user", "agent buildpack"}) {
		t.Errorf("sidecars %q", got)
	}
	if r := dewd.dew(dir, "push", "-b", "binary_buildpack"); r.code != 0 {
		t.Errorf("without the first one: %s", r.err)
	}
	if sidecars := dew(t, "", "curl", "/v3/apps/"+guidOf(t, name)+"/sidecars").out; strings.Contains(sidecars, `"agent"`) {
		t.Errorf("the sidecar of a buildpack that is not used any more is still there:\n%s", sidecars)
	}
}

// Uploaded buildpacks work in a chain: each supplies into its own folder, the last one
// finalizes with the files of the others. A built-in buildpack can be the last.
func TestBuildpackChain(t *testing.T) {
	const name = "chain"
	const one, two = "chain_one", "chain_two"
	const script = "#!/bin/sh\n"
	for pack, scripts := range map[string]map[string]string{
		one: {"supply": `set -e
echo "supply of $4 with $#"
mkdir -p "$3/$4/bin" "$3/$4/env" "$3/$4/profile.d"
printf '%s\n' '` + script + `[ "$1" != --version ] || exec echo "ruby with $FROM_ENV"' '[ "$1" != -e ] || exec echo 99.1.2' 'echo "$1 with $FROM_ENV$FROM_PROFILE in $(basename "$(dirname "$(dirname "$0")")")"' 'sleep 1000' >"$3/$4/bin/ruby"
chmod +x "$3/$4/bin/ruby"
printf staging >"$3/$4/env/FROM_ENV"
echo 'export FROM_PROFILE=profile' >"$3/$4/profile.d/one.sh"
printf 'name: one\nversion: 1.2.3\nconfig: {}\n' >"$3/$4/config.yml"`},
		two: {
			"supply":   `echo "supply of $4 sees $(ls "$3" | tr '\n' ' ')"; printf 'name: two\nversion: 4.5.6\n' >"$3/$4/config.yml"`,
			"finalize": `echo "finalize of $4 sees $(grep name: "$3/0/config.yml")"; cp "$3/0/profile.d/one.sh" "$5/0_one.sh"; echo 'export PATH="$DEPS_DIR/0/bin:$PATH"' >"$5/path.sh"`,
			"release":  "echo 'default_process_types: {web: exec ruby two.rb}'",
		},
	} {
		t.Cleanup(func() { dewd.dew("", "delete-buildpack", pack, "-f") })
		dew(t, "", "create-buildpack", pack, buildpack(t, scripts), "99")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Gemfile"), "ruby '~> 99.1'\n", 0o644)
	push := func(packs ...string) result {
		write(t, filepath.Join(dir, "manifest.yml"), "applications:\n- {name: chain, memory: 32M, no-route: true, health-check-type: process, buildpacks: ["+strings.Join(packs, ", ")+"]}\n", 0o644)
		return dewd.dew(dir, "push")
	}
	printed := func(want string) {
		t.Helper()
		eventually(t, want, func() error {
			for _, l := range logsOf(t, name) {
				if l.Source == "APP/PROC/WEB" && l.Text == want {
					return nil
				}
			}
			return fmt.Errorf("it has not printed %q", want)
		})
	}
	deleteLater(t, name)
	if r := push(one, two); r.code != 0 {
		t.Fatalf("status %d:\n%s", r.code, r.err)
	}
	printed("two.rb with profile in 0")
	lines := stagingLines(t, name)
	for _, want := range []string{`^supply of 0 with 4$`, `^supply of 1 sees 0 1 $`, `^finalize of 1 sees name: one$`} {
		wantLine(t, lines, want)
	}
	droplet := dew(t, "", "curl", "/v3/apps/"+guidOf(t, name)+"/droplets/current").out
	if !regexp.MustCompile(`(?s)"buildpack_name": *"one".*"version": *"1\.2\.3".*"buildpack_name": *"two".*"version": *"4\.5\.6"`).MatchString(droplet) {
		t.Errorf("the droplet does not name both buildpacks:\n%s", droplet)
	}

	write(t, filepath.Join(dir, "Procfile"), "web: exec ruby built-in.rb\n", 0o644)
	if r := push(one, "ruby_buildpack"); r.code != 0 {
		t.Fatalf("a built-in buildpack as the last: status %d:\n%s", r.code, r.err)
	}
	printed("built-in.rb with profile in 0")
	wantLine(t, stagingLines(t, name), `^ +ruby with staging$`)
	wantLine(t, stagingLines(t, name), `^ +Ruby 99\.1\.2 satisfies ~> 99\.1 \(Gemfile line 1\)$`)

	if r := push("ruby_buildpack", one); r.code != 3 || !strings.Contains(r.err, "buildpack "+one+" has neither bin/finalize nor bin/compile: the last buildpack needs one of them") {
		t.Errorf("one that only supplies as the last: status %d:\n%s", r.code, r.err)
	}
}
