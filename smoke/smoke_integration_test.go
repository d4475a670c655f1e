//go:build integration

package smoke_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// patience limits every wait: only a hang reaches it.
const patience = 5 * time.Minute

// bin has the programs of a release, and those of the example.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dew")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	for module, packages := range map[string][]string{
		"..":          {"./cmd/dewd", "./cmd/dew", "./cmd/dew-init"},
		"../examples": {"./config-sidecar/app", "./config-sidecar/config-server"},
	} {
		c := exec.Command("go", append([]string{"build", "-trimpath", testkit.NoSymbols, "-o", bin + "/"}, packages...)...)
		c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot build the programs: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// bench is a working folder. All files of a run are in it, so that leftovers can be
// seen.
type bench struct{ dir, tmp string }

func newBench(t *testing.T, files map[string]string) bench {
	t.Helper()
	dir := testkit.ShortDir(t)
	b := bench{dir: dir, tmp: filepath.Join(dir, "t")}
	if err := os.MkdirAll(b.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// dew returns the command in the folder, without settings and without a daemon to find.
func (b bench) dew(ctx context.Context, args ...string) (cmd *exec.Cmd, out, talk *bytes.Buffer) {
	out, talk = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, filepath.Join(bin, "dew"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, out, talk
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp, "DEW_RUN="+filepath.Join(b.dir, "none"), "DEW_HOME="+b.dir, "DEW_API=", "BIN="+bin)
	return cmd, out, talk
}

func (b bench) run(t *testing.T, args ...string) (code int, out, talk string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, o, e := b.dew(ctx, args...)
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// began waits until a check has created its file.
func (b bench) began(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "the check begins", func() error {
		_, err := os.Stat(filepath.Join(b.dir, "began"))
		return err
	})
}

// nothingLeft checks for leftovers. A process that was stopped can need a moment.
func (b bench) nothingLeft(t *testing.T) {
	t.Helper()
	if err := testkit.Until(b.leftovers); err != nil {
		t.Error(err)
	}
}

// leftovers returns traces of private daemons: files, processes and mounts, which
// include network namespaces.
func (b bench) leftovers() error {
	left, err := os.ReadDir(b.tmp)
	errs := []error{err}
	for _, e := range left {
		errs = append(errs, fmt.Errorf("%s is left", e.Name()))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, b.tmp+"/") {
			errs = append(errs, fmt.Errorf("a mount is left: %s", line))
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	errs = append(errs, err)
	for _, name := range lines {
		text, _ := os.ReadFile(name) // a process that has exited since is fine
		if bytes.Contains(text, []byte(b.tmp+"/")) {
			errs = append(errs, fmt.Errorf("a process is left: %s %q", name, text))
		}
	}
	return errors.Join(errs...)
}

// rootTag is the suffix of names outside of a root's folders.
func rootTag(root string) string {
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:4])
}

// outside returns the resources of a daemon with this root outside of its folders: a
// bridge and cgroups, which have the root's own names.
func outside(root string) (found []string, err error) {
	tag := rootTag(root)
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if l.Name == "dewbr"+tag {
			found = append(found, "link "+l.Name)
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/dew-" + tag, "/sys/fs/cgroup/*/dew-" + tag, "/sys/fs/cgroup/*/*/dew-" + tag} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = append(found, dirs...)
	}
	return found, nil
}

const manifest = `applications:
- name: shop
  path: build
  buildpacks: [binary_buildpack]
  command: ./app
  memory: 128M
  env: {CONFIG_SERVER_PORT: "8082", SHOP_PASSWORD: not-for-the-bundle}
  sidecars:
  - {name: config-server, process_types: [web], command: ./config-server, memory: 64MB}
`

const good = `build: mkdir -p build && cp "$BIN/app" "$BIN/config-server" build/
before: test "$(dew target | grep -c "$SMOKE_ORG")" = 1
checks:
- name: the app hands on what the sidecar says
  http: {path: /config, status: 200, header: {Content-Type: application/json}, json: {"$.scope": some-service.admin}}
- name: the sidecar itself, which has no route
  http: {path: /config/, port: 8082, contains: some-service.admin}
- log: {contains: config server listens, source: APP/PROC/WEB/SIDECAR/CONFIG-SERVER}
- ssh: {command: pwd, equals: /home/vcap/app}
- run: |
    dew status --json >status.json
    ls -d /sys/class/net/dewbr* >outside.txt
    find /sys/fs/cgroup -maxdepth 3 -name 'dew-*' >>outside.txt
- kill: {sidecar: config-server}
  exit: {description: "APP/PROC/WEB/SIDECAR/CONFIG-SERVER: Exited with status 137", reason: CRASHED}
- name: a process that a command ends counts as well
  ssh: {command: 'kill -9 $(pgrep -x app)', status: [0, 255]}
  exit: {description: "APP/PROC/WEB: Exited with status 137"}
- name: it is back
  http: GET /config
- run: dew crashes "$APP" --json >crashes.json
`

// A folder with a sidecar passes with a private daemon, which leaves nothing behind.
func TestSmoke(t *testing.T) {
	b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": good})
	code, out, talk := b.run(t, "smoke", "--json", "--junit", "report.xml", "shop")
	if code != 0 {
		t.Fatalf("status %d\n%s\n%s", code, out, talk)
	}
	var report struct {
		Status  int
		Folders []struct {
			Folder string
			Steps  []struct{ Name, State, Kind, App string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if report.Status != 0 || len(report.Folders) != 1 || len(report.Folders[0].Steps) != 14 {
		t.Errorf("report = %+v", report)
	}
	if strings.Contains(talk, "not-for-the-bundle") {
		t.Errorf("stderr has a secret of the manifest:\n%s", talk)
	}
	for _, want := range []string{"[APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0] OUT config server listens", "shop: it is back: ok"} {
		if !strings.Contains(talk, want) {
			t.Errorf("stderr lacks %q:\n%s", want, talk)
		}
	}
	checkJUnit(t, filepath.Join(b.dir, "report.xml"), 14, 0)
	var crashes []struct{ Instance string }
	readJSON(t, filepath.Join(b.dir, "shop", "crashes.json"), &crashes)
	if len(crashes) != 2 {
		t.Errorf("crashes = %+v, want two", crashes)
	}
	var status struct{ Root string }
	readJSON(t, filepath.Join(b.dir, "shop", "status.json"), &status)
	if !strings.HasPrefix(status.Root, b.tmp+"/") {
		t.Errorf("the root was %s, want one below %s", status.Root, b.tmp)
	}
	b.nothingLeft(t)
	// A check of the running daemon proves that the test searches in the right place.
	during, err := os.ReadFile(filepath.Join(b.dir, "shop", "outside.txt"))
	tag := rootTag(status.Root)
	if err != nil || !strings.Contains(string(during), "dewbr"+tag) || !strings.Contains(string(during), "/dew-"+tag) {
		t.Errorf("while it ran there was %v\n%s\nwant a bridge and a cgroup with %s", err, during, tag)
	}
	if found, err := outside(status.Root); err != nil || len(found) > 0 {
		t.Errorf("outside of its folders it has left %v, %v", found, err)
	}
}

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, text)
	}
}

func checkJUnit(t *testing.T, file string, tests, failures int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		XMLName  xml.Name `xml:"testsuites"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct{} `xml:"testcase"`
			Out   string     `xml:"system-out"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got.Tests != tests || got.Failures != failures || !strings.Contains(got.Suites[0].Out, "APP/PROC/WEB") {
		t.Errorf("JUnit = %+v, want %d tests and %d failures", got, tests, failures)
	}
}

// A failed check has status 8, a message and a bundle without secrets. The other of two
// folders is still tested.
func TestSmokeFails(t *testing.T) {
	bad := `build: mkdir -p build && cp "$BIN/app" "$BIN/config-server" build/
checks:
- name: the scope is another
  http: {path: /config, json: {"$.scope": nobody}}
  timeout: 3s
- ssh: never reached
`
	b := newBench(t, map[string]string{
		"bad/manifest.yml": manifest, "bad/smoke.yml": bad,
		"good/manifest.yml": manifest, "good/smoke.yml": strings.SplitAfter(good, "some-service.admin}}\n")[0],
	})
	code, out, talk := b.run(t, "smoke", "--junit", "report.xml", "./...")
	if code != 8 {
		t.Errorf("status %d, want 8\n%s\n%s", code, out, talk)
	}
	for _, want := range []string{`dew: bad: the scope is another (app shop): $.scope is "some-service.admin", want "nobody"`, "Logs, events and exit records are in smoke-bad.tar.gz"} {
		if !strings.Contains(talk, want) {
			t.Errorf("stderr lacks %q:\n%s", want, talk)
		}
	}
	if !strings.Contains(out, "good") || !strings.Contains(out, "1 failed, 2 skipped") {
		t.Errorf("stdout = %s", out)
	}
	checkJUnit(t, filepath.Join(b.dir, "report.xml"), 12, 1)
	text, err := exec.Command("tar", "xzOf", filepath.Join(b.dir, "smoke-bad.tar.gz")).Output()
	if err != nil || !bytes.Contains(text, []byte("config server listens")) || !bytes.Contains(text, []byte(`"SHOP_PASSWORD": "***"`)) || bytes.Contains(text, []byte("not-for-the-bundle")) {
		t.Errorf("bundle: %v\n%s", err, text)
	}
	b.nothingLeft(t)
}

// An interruption during a check stops everything, and nothing is left.
func TestSmokeInterrupted(t *testing.T) {
	for _, tt := range []struct {
		name string
		sig  syscall.Signal
	}{{"Ctrl-C", syscall.SIGINT}, {"SIGTERM", syscall.SIGTERM}} {
		t.Run(tt.name, func(t *testing.T) {
			spec := `build: mkdir -p build && cp "$BIN/app" "$BIN/config-server" build/
checks:
- run: touch ../began && sleep 600
  timeout: 10m
`
			b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": spec})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd, _, talk := b.dew(ctx, "smoke", "shop")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			b.began(t)
			if err := syscall.Kill(-cmd.Process.Pid, tt.sig); err != nil { // to the whole group, as a terminal does
				t.Fatal(err)
			}
			_ = cmd.Wait() // the test checks its status
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(talk.String(), "Interrupted: cleaning up") {
				t.Errorf("status %d, want 1\n%s", code, talk)
			}
			b.nothingLeft(t)
		})
	}
}

// A killed daemon is reported as such, and its leftovers are removed.
func TestSmokeDaemonKilled(t *testing.T) {
	spec := `build: mkdir -p build && cp "$BIN/app" "$BIN/config-server" build/
checks:
- name: the daemon dies
  run: |
    kill -9 "$(dew curl /dew/v1/status | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')"
- name: nobody answers
  http: GET /config
  timeout: 1s
`
	b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": spec})
	code, out, talk := b.run(t, "smoke", "shop")
	if code != 6 || !strings.Contains(talk, "cannot connect to dewd") {
		t.Errorf("status %d, want 6\n%s\n%s", code, out, talk)
	}
	b.nothingLeft(t)
}

// The next run removes the leftovers of a killed run.
func TestSmokeKilled(t *testing.T) {
	spec := `build: mkdir -p build && cp "$BIN/app" "$BIN/config-server" build/
checks:
- run: if test -e ../began; then exit 0; fi; touch ../began; sleep 5
`
	b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": spec})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, _, _ := b.dew(ctx, "smoke", "shop")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.began(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if b.leftovers() == nil {
		t.Error("a run that was killed has left nothing: nothing is shown here")
	}
	code, out, talk := b.run(t, "smoke", "shop")
	if code != 0 || !strings.Contains(talk, "Removing a private daemon of a killed dew smoke") {
		t.Errorf("status %d, want 0\n%s\n%s", code, out, talk)
	}
	b.nothingLeft(t)
}

// A run succeeds even if the reader of its output closes the pipe early.
func TestSmokeWithoutReader(t *testing.T) {
	b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": strings.SplitAfter(good, "some-service.admin}}\n")[0]})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, _, _ := b.dew(ctx, "smoke", "shop", "--junit", "report.xml")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	checkJUnit(t, filepath.Join(b.dir, "report.xml"), 6, 0)
	b.nothingLeft(t)
}

// A change starts the next test, with the same daemon.
func TestSmokeWatch(t *testing.T) {
	spec := `build: mkdir -p build && cp "$BIN/app" "$BIN/config-server" build/
checks:
- run: dew status --json | grep '"pid"' >>../pids
`
	b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": spec})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out, _ := b.dew(ctx, "smoke", "--watch", "shop")
	talk, err := os.Create(filepath.Join(b.dir, "talk"))
	if err != nil {
		t.Fatal(err)
	}
	defer talk.Close()
	cmd.Stderr = talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := func() string {
		text, err := os.ReadFile(talk.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	watching := func(n int) {
		testkit.EventuallyTrue(t, "dew watches for changes", func() bool { return strings.Count(said(), "Watching for changes") >= n })
	}
	watching(1)
	if err := os.WriteFile(filepath.Join(b.dir, "shop", "new.txt"), []byte("new"), 0o644); err != nil {
		t.Error(err)
	}
	watching(2)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // the test checks its status
	pids, err := os.ReadFile(filepath.Join(b.dir, "pids"))
	lines := strings.Fields(strings.ReplaceAll(string(pids), `"pid":`, ""))
	if cmd.ProcessState.ExitCode() != 0 || err != nil || len(lines) != 2 || lines[0] != lines[1] || strings.Count(out.String(), "5 ok, 0 failed") != 2 {
		t.Errorf("%s, pids %q, %v\n%s\n%s", cmd.ProcessState, pids, err, out, said())
	}
	b.nothingLeft(t)
}

// With a shared daemon, a run works in its own org, gives its app another route, and
// leaves everything else unchanged.
func TestSmokeBesideOthers(t *testing.T) {
	b := newBench(t, map[string]string{"shop/manifest.yml": manifest, "shop/smoke.yml": strings.SplitAfter(good, "some-service.admin}}\n")[0]})
	run := filepath.Join(b.tmp, "run")
	log, err := os.Create(filepath.Join(b.dir, "dewd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := os.MkdirAll(filepath.Join(b.tmp, "root", "containerd"), 0o700); err != nil {
		t.Fatal(err)
	}
	dewd := exec.Command(filepath.Join(bin, "dewd"), "--root", filepath.Join(b.tmp, "root"), "--run", run,
		"--listen", "127.0.0.1:0", "--router", "127.0.0.1:0", "--ssh", "127.0.0.1:0", "--listen-tls=off", "--router-tls=off", "--tcp-ports=", "--log-reserve", "1MiB")
	dewd.Stdout, dewd.Stderr = log, log
	if err := dewd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if code, _, talk := b.run(t, "--run", run, "shutdown", "--apps"); code != 0 {
			t.Errorf("shutdown: %s", talk)
		}
		_ = dewd.Wait() // dew has waited for it
	}()
	must := func(args ...string) string {
		t.Helper()
		code, out, talk := b.run(t, append([]string{"--run", run}, args...)...)
		if code != 0 {
			t.Fatalf("dew %v: status %d\n%s%s", args, code, out, talk)
		}
		return out
	}
	testkit.EventuallyTrue(t, "dewd answers", func() bool {
		code, _, _ := b.run(t, "--run", run, "status")
		return code == 0
	})
	must("smoke", "--keep", "shop") // this one has the plain route, and stays
	before := must("orgs")
	out := must("smoke", "--json", "shop")
	if !strings.Contains(out, `"status": 0`) {
		t.Errorf("report = %s", out)
	}
	if after := must("orgs"); after != before || !strings.Contains(after, "smoke-") {
		t.Errorf("orgs were\n%sand are\n%s", before, after)
	}
	if apps := must("curl", "/v3/apps"); strings.Count(apps, `"name":"shop"`)+strings.Count(apps, `"name": "shop"`) != 1 {
		t.Errorf("apps = %s", apps)
	}
}

// Mistakes are reported with a fix, before anything is started.
func TestSmokeMistakes(t *testing.T) {
	b := newBench(t, map[string]string{"bad/smoke.yml": "chekcs: []\n", "bad/manifest.yml": manifest})
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"smoke", "bad"}, 2, "bad/smoke.yml, line 1: chekcs: is not a known key: did you mean checks? (valid keys: alone, needs, build,"},
		{[]string{"smoke", "nowhere"}, 2, "cannot find the folder or manifest to test"},
		{[]string{"--run", "nowhere", "smoke", "bad/manifest.yml", "--force"}, 2, "--force needs dew smoke init"},
		{[]string{"smoke", "init", "bad"}, 2, "bad/smoke.yml already exists"},
		{[]string{"smoke", "init", "bad", "--force"}, 0, "Wrote bad/smoke.yml"},
		{[]string{"--run", "nowhere", "smoke", "bad"}, 6, "cannot connect to dewd"},
		{[]string{"smoke", "bad", "--dewd", "/nowhere/dewd"}, 9, "cannot start /nowhere/dewd"},
	} {
		if code, _, talk := b.run(t, tt.args...); code != tt.code || !strings.Contains(talk, tt.want) {
			t.Errorf("dew %v: status %d\n%s\nwant %d with %q", tt.args, code, talk, tt.code, tt.want)
		}
	}
	b.nothingLeft(t)
}
