//go:build bench

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// BenchmarkPeers changes a file of the sample app and waits until the new version
// answers through its sidecar. It alternates between dew push, and docker build with
// two docker run that share a network. It also measures the memory of the daemons of
// both while the app runs, including containerd and shims.
func BenchmarkPeers(b *testing.B) {
	c := newCell(b)
	c.start()
	d := startDocker(b)
	if d == nil {
		b.Skip("there is no docker to compare with")
	}
	s := newSample(b)
	var ours, theirs []time.Duration
	for n := range max(b.N, 7) {
		s.change(n)
		ours = append(ours, s.timed(func() { c.dew("push", "-f", s.at("manifest.yml")) }, c.router(), "config-sidecar.dew.localhost"))
		theirs = append(theirs, s.timed(func() { s.compose(d, n) }, "http://127.0.0.1:"+strconv.Itoa(s.port), ""))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(median(ours)), "ms/dew")
	b.ReportMetric(ms(median(theirs)), "ms/docker")
	b.ReportMetric(ms(median(theirs))/ms(median(ours)), "docker/dew")
	b.ReportMetric(residentOf(b, filepath.Dir(c.root)), "MB-dew")
	b.ReportMetric(residentOf(b, d.dir), "MB-docker")
	for _, name := range []string{"app", "config-server"} {
		_ = d.command("rm", "--force", name).Run()
	}
}

// sample is the built app with a sidecar.
type sample struct {
	b    *testing.B
	dir  string
	port int // port of docker's version
}

func newSample(b *testing.B) *sample {
	b.Helper()
	s := &sample{b: b, dir: b.TempDir(), port: 20100 + os.Getpid()%500}
	cmd := exec.Command("go", "build", "-trimpath", "-o", s.at("build")+"/", "./app", "./config-server")
	cmd.Dir = filepath.Join("..", "..", "examples", "config-sidecar")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	manifest, err := os.ReadFile(filepath.Join(cmd.Dir, "manifest.yml"))
	if err != nil {
		b.Fatal(err)
	}
	s.write("manifest.yml", string(manifest))
	s.write("build/Dockerfile", "FROM scratch\nCOPY . /\n")
	return s
}

func (s *sample) at(name string) string { return filepath.Join(s.dir, name) }

func (s *sample) write(name, text string) {
	if err := os.WriteFile(s.at(name), []byte(text), 0o644); err != nil {
		s.b.Fatal(err)
	}
}

// change changes the app.
func (s *sample) change(n int) { s.write("build/changed", fmt.Sprint("for the time ", n)) }

// timed returns the time until the app answers through its sidecar.
func (s *sample) timed(push func(), url, host string) time.Duration {
	s.b.Helper()
	began := time.Now()
	push()
	err := testkit.UntilExactly(func() error {
		req, err := http.NewRequest(http.MethodGet, url+"/config", nil)
		if err != nil {
			return testkit.Finally(err)
		}
		req.Host = host
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
	if err != nil {
		s.b.Fatalf("%s does not answer: %v", url, err)
	}
	return time.Since(began)
}

// compose does what docker compose would do: build, remove the old containers, run
// both.
func (s *sample) compose(d *docker, n int) {
	s.b.Helper()
	image := fmt.Sprint("sample:", n)
	steps := [][]string{{"build", "--quiet", "--tag", image, s.at("build")}}
	if n > 0 {
		steps = append(steps, []string{"rm", "--force", "app", "config-server"})
	}
	env := []string{"--env", fmt.Sprint("PORT=", s.port), "--env", fmt.Sprint("CONFIG_SERVER_PORT=", s.port+500)}
	for _, name := range []string{"config-server", "app"} {
		args := append([]string{"run", "--detach", "--name", name, "--network", "host", "--memory", "64m"}, env...)
		steps = append(steps, append(args, image, "/"+name))
	}
	for _, args := range steps {
		cmd := d.command(args...)
		cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0", "DOCKER_CONFIG="+d.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.b.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// residentOf returns the memory of the daemons and shims that have the folder in their
// command line, in MB.
func residentOf(b *testing.B, dir string) float64 {
	b.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for _, file := range lines {
		line, err := os.ReadFile(file)
		name, _, _ := strings.Cut(string(line), "\x00")
		switch {
		case err != nil || !strings.Contains(string(line), dir):
			continue
		case !strings.Contains(name, "dockerd") && !strings.Contains(name, "containerd") && !strings.Contains(name, "dewd"):
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if _, rest, ok := strings.Cut(string(status), "VmRSS:"); err == nil && ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			sum += float64(kb) / 1024
		}
	}
	return sum
}
