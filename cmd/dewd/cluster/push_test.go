//go:build k8stest

package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/install"
	"github.com/dewrun/dew/runtime/kubernetes/kubetest"
	"github.com/dewrun/dew/testkit"
)

// rules returns the permissions of dewd in its namespace: those of the manifests.
func rules(t testing.TB) (out []kubetest.Rule) {
	t.Helper()
	all, err := install.Objects(install.Settings{Namespace: "dew"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o["kind"] != "Role" {
			continue
		}
		b, err := json.Marshal(o["rules"])
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) == 0 {
		t.Fatal("the manifests have no Role")
	}
	return out
}

// built is the folder with the programs, empty if no test needed them.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // in the folder for temporary files
	}
	os.Exit(code)
}

// programs builds dewd with Kubernetes, the other programs, and the sample app.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dew-k8stest-")
	if err != nil {
		return "", err
	}
	built = dir
	for _, args := range [][]string{
		{"build", "-C", "../../..", "-tags", "kubernetes", "-ldflags=-s -w", "-o", dir + "/", "./cmd/..."},
		{"build", "-C", "../../../examples", "-o", dir + "/app/", "./config-sidecar/app", "./config-sidecar/config-server"},
	} {
		if err := os.MkdirAll(dir+"/app", 0o755); err != nil {
			return "", err
		}
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot build the programs: %w\n%s", err, out)
		}
	}
	return dir, nil
})

// world is a dewd on the cluster.
type world struct {
	testing.TB
	cluster        *kubetest.Cluster
	namespace      string
	bin, root, run string
	args           []string
	api, router    string
	cmd            *exec.Cmd
	said           transcript // the log of dewd
}

func newWorld(t testing.TB) *world {
	return newWorldAt(t, func(kubeconfig string) string { return kubeconfig })
}

// newWorldAt returns a dewd that uses another kubeconfig file, for example one of a
// proxy, and more flags.
func newWorldAt(t testing.TB, use func(kubeconfig string) string, flags ...string) *world {
	cluster := kubetest.Open(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	namespace := cluster.Namespace(t, kubetest.Restricted)
	login := cluster.ServiceAccount(t, namespace, "dewd", rules(t)...)
	host, _, _ := strings.Cut(cluster.Registry, ":")
	port := testkit.FreePorts(t, 6)
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(port+i) }
	w := &world{TB: t, cluster: cluster, namespace: namespace, bin: bin, root: t.TempDir(), run: testkit.ShortDir(t), api: at(0), router: at(1)}
	agents := host + ":" + strconv.Itoa(port+5)
	w.args = []string{
		"--engine", "kubernetes", "--kubeconfig", use(login.Kubeconfig), "--namespace", namespace, "--registry", cluster.Registry, "--insecure-registry", cluster.Registry,
		"--agent-listen", agents, "--agent-address", agents, "--root", w.root, "--run", w.run, "--listen", at(0), "--router", at(1),
		"--listen-tls", "off", "--router-tls", "off", "--ssh", at(4), "--tcp-ports", "",
	}
	w.args = append(w.args, flags...)
	w.start()
	t.Cleanup(func() {
		_, _ = w.dew("shutdown", "--apps") // the namespace is deleted in any case
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	w.must("stack", "add", "debian", cluster.StackArchive(t))
	return w
}

// start starts dewd, again after a kill.
func (w *world) start() {
	w.Helper()
	w.cmd = exec.Command(filepath.Join(w.bin, "dewd"), w.args...)
	w.cmd.Stderr = io.MultiWriter(w.Output(), &w.said)
	if err := w.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	testkit.Eventually(w, "dewd answers", func() error {
		_, err := w.dew("status")
		return err
	})
}

// kill kills dewd without a warning.
func (w *world) kill() {
	w.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		w.Fatal(err)
	}
	_ = w.cmd.Wait() // it was killed
}

// dew runs a command of dew and returns its output.
func (w *world) dew(args ...string) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(w.Context()), filepath.Join(w.bin, "dew"), args...)
	cmd.Env = append(os.Environ(), "DEW_RUN="+w.run, "HOME="+w.root, "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("dew %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (w *world) must(args ...string) string {
	w.Helper()
	out, err := w.dew(args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// get requests a path of an app through the router.
func (w *world) get(app, path string) (string, error) {
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.router+path, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host = app + ".dew.localhost"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// push pushes the sample app with its sidecar.
func (w *world) push() {
	w.Helper()
	w.must("push", "-f", w.manifest())
}

// manifest writes the manifest of the sample app. The app is healthy when its sidecar
// answers.
func (w *world) manifest() string {
	w.Helper()
	return testkit.WriteFile(w, filepath.Join(w.TempDir(), "manifest.yml"), w.manifestText())
}

func (w *world) manifestText() string {
	return `---
applications:
- name: sample
  path: ` + w.bin + `/app
  stack: debian
  buildpacks: [binary_buildpack]
  command: ./app
  memory: 128M
  health-check-type: http
  health-check-http-endpoint: /config
  env: {CONFIG_SERVER_PORT: "8082"}
  sidecars:
  - name: config-server
    process_types: [web]
    command: ./config-server
    memory: 64M
`
}

// A user takes an app with its sidecar from one machine to a cluster: everything works
// the same way.
func TestPush(t *testing.T) {
	w := newWorld(t)
	w.push()
	if out, err := w.get("sample", "/config"); err != nil {
		t.Fatalf("the app does not answer through its sidecar: %v %s", err, out)
	}
	if out := w.must("ssh", "sample", "-c", "cat /proc/self/cmdline | tr '\\0' ' '; pwd"); !strings.Contains(out, "/home/vcap/app") {
		t.Errorf("a session printed %q", out)
	}
	// A killed sidecar is named, and the instance restarts.
	w.must("ssh", "sample", "-c", `for p in /proc/[0-9]*; do if [ "$(tr '\0' ' ' <$p/cmdline)" = "./config-server " ]; then kill -9 ${p#/proc/}; fi; done`)
	testkit.Eventually(t, "the crash is recorded", func() error {
		out, err := w.dew("crashes", "sample")
		if err == nil && !strings.Contains(out, "config-server") {
			err = errors.New(out)
		}
		return err
	})
	if out := w.must("app", "sample"); !strings.Contains(out, "sidecar config-server ended with status 137") {
		t.Errorf("dew app does not name what crashed:\n%s", out)
	}
	testkit.Eventually(t, "the app answers again", func() error {
		_, err := w.get("sample", "/config")
		return err
	})
	w.must("scale", "sample", "-i", "2")
	if out := w.must("run", "sample", "--", "echo a task; exit 0"); !strings.Contains(out, "a task") {
		t.Errorf("a task printed %q", out)
	}
	// The next daemon manages the same Pods.
	before := w.must("app", "sample", "--json")
	w.kill()
	w.start()
	testkit.Eventually(t, "the app answers after dewd was killed", func() error {
		_, err := w.get("sample", "/config")
		return err
	})
	if after := w.must("app", "sample", "--json"); instances(before) != instances(after) {
		t.Errorf("the instances changed:\n%s\n%s", instances(before), instances(after))
	}
}

// instances returns the lines with ids of instances.
func instances(out string) string {
	var ids []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"instance`) {
			ids = append(ids, strings.TrimSpace(line))
		}
	}
	return strings.Join(ids, " ")
}

// A rolling deployment loses no request.
func TestDeployment(t *testing.T) {
	w := newWorld(t)
	w.push()
	w.must("scale", "sample", "-i", "2")
	stop := w.load()
	w.must("restart", "sample", "--strategy", "rolling")
	stop()
}

// load sends requests to the sample app until the returned function is called. It fails
// the test if one of them fails.
func (w *world) load() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var requests, failed atomic.Int64
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				requests.Add(1)
				if _, err := w.get("sample", "/config"); err != nil && ctx.Err() == nil {
					failed.Add(1)
					w.Logf("request failed: %v", err)
				}
			}
		})
	}
	return func() {
		w.Helper()
		cancel()
		load.Wait()
		if requests.Load() == 0 || failed.Load() > 0 {
			w.Errorf("%d of %d requests failed", failed.Load(), requests.Load())
		}
		w.Logf("%d requests", requests.Load())
	}
}

// lines is how many lines TestLogs checks.
const lines = 100_000

// No line is lost while dewd is killed again and again.
func TestLogs(t *testing.T) {
	w := newWorld(t)
	w.must("push", "-f", countingApp(t))
	kills := 0
	for began := time.Now(); time.Since(began) < time.Minute && kills < 5; kills++ {
		w.kill()
		w.start()
	}
	t.Logf("dewd was killed %d times", kills)
	w.checkCount()
}

// countingApp writes an app that prints numbered lines, and returns its manifest.
func countingApp(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "count.sh"), `i=0
while [ $i -lt `+strconv.Itoa(lines/1000)+` ]; do seq $((i*1000+1)) $((i*1000+1000)); i=$((i+1)); sleep 0.05; done
echo all
sleep 100000
`)
	return testkit.WriteFile(t, filepath.Join(dir, "manifest.yml"), `---
applications:
- name: count
  path: .
  stack: debian
  buildpacks: [binary_buildpack]
  command: sh count.sh
  health-check-type: process
  memory: 64M
`)
}

// checkCount checks that every line of the counting app is in its log, in order.
func (w *world) checkCount() {
	w.Helper()
	testkit.Eventually(w, "the app has printed everything", func() error {
		out, err := w.dew("logs", "count", "--recent", "-n", "5", "--raw")
		if err == nil && !strings.Contains(out, "all") {
			err = errors.New(out)
		}
		return err
	})
	out := w.must("logs", "count", "--recent", "-n", strconv.Itoa(2*lines), "--process", "web", "--raw")
	next := 1
	for line := range strings.Lines(out) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			if n != next {
				w.Fatalf("line %d follows line %d", n, next-1)
			}
			next++
		}
	}
	if next != lines+1 {
		w.Errorf("%d lines, want %d", next-1, lines)
	}
}

// stockClient returns the path of the stock cf. Without it, the test is skipped.
func stockClient(t *testing.T) string {
	t.Helper()
	cf := os.Getenv("CF_BIN")
	if cf == "" {
		t.Skip("CF_BIN is not set")
	}
	return cf
}

// cf logs in with the stock cf, and returns a function that runs its commands.
func (w *world) cf(path string) func(args ...string) string {
	w.Helper()
	password, err := os.ReadFile(filepath.Join(w.root, "admin-password"))
	if err != nil {
		w.Fatal(err)
	}
	home := w.TempDir()
	run := func(args ...string) string {
		w.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(w.Context(), path, args...)
		cmd.Env = append(os.Environ(), "CF_HOME="+home, "CF_USERNAME=admin", "CF_PASSWORD="+strings.TrimSpace(string(password)), "CF_COLOR=false")
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			w.Fatalf("cf %s: %v\n%s", strings.Join(args, " "), err, out.String())
		}
		return out.String()
	}
	run("api", "http://"+w.api)
	run("auth")
	run("create-org", "o")
	run("target", "-o", "o")
	run("create-space", "s")
	run("target", "-s", "s")
	return run
}

// The stock cf works unmodified.
func TestCF(t *testing.T) {
	path := stockClient(t)
	w := newWorld(t)
	run := w.cf(path)
	run("push", "-f", w.manifest())
	if out := run("app", "sample"); !strings.Contains(out, "#0   running") {
		t.Errorf("cf app:\n%s", out)
	}
	if out := run("ssh", "sample", "-c", "echo from inside"); !strings.Contains(out, "from inside") {
		t.Errorf("cf ssh printed %q", out)
	}
	run("scale", "sample", "-i", "2")
	run("restart", "sample")
	run("map-route", "sample", "dew.localhost", "--hostname", "other")
	if out := run("logs", "sample", "--recent"); !strings.Contains(out, "config server listens") {
		t.Errorf("cf logs:\n%s", out)
	}
	run("delete", "sample", "-f", "-r")
}
