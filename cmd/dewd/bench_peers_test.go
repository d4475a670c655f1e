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
// answers through its sidecar. It alternates between dew push and its peers. It also
// measures the memory of the daemons of dew and docker while the app runs, including
// containerd and shims.
func BenchmarkPeers(b *testing.B) {
	c := newCell(b)
	c.start()
	s := newSample(b)
	d := startDocker(b)
	peers := s.peers(d)
	if len(peers) == 0 {
		b.Skip("there is nothing to compare with")
	}
	var ours []time.Duration
	theirs := make([][]time.Duration, len(peers))
	for n := range max(b.N, 7) {
		s.change(n)
		ours = append(ours, s.timed(func() { c.dew("push", "-f", s.at("manifest.yml")) }, c.router(), "config-sidecar.dew.localhost"))
		for i, p := range peers {
			theirs[i] = append(theirs[i], s.timed(func() { s.must(p.update(n)) }, "http://127.0.0.1:"+strconv.Itoa(p.port), ""))
		}
	}
	b.ReportMetric(0, "ns/op")
	reportTimes(b, "ms/dew", ours)
	b.ReportMetric(residentOf(b, filepath.Dir(c.root)), "MB-dew")
	for i, p := range peers {
		reportTimes(b, "ms/"+p.name, theirs[i])
		b.ReportMetric(ms(median(ours))/ms(median(theirs[i])), "dew/"+p.name)
		b.Logf("%s: %v; dew: %v", p.name, theirs[i], ours)
		if p.name != "docker" {
			p.remove()
		}
	}
	if d != nil {
		b.ReportMetric(residentOf(b, d.dir), "MB-docker")
		peers[0].remove()
	}
}

// peer runs the two programs of the sample in two containers of one image. Both use the
// network of the machine.
type peer struct {
	name   string
	port   int
	update func(n int) error // builds the image and replaces the containers; n is 0 at first
	remove func()
}

// peers returns the peers that run here, docker first, and logs why others do not.
func (s *sample) peers(d *docker) []peer {
	s.b.Helper()
	var out []peer
	if d != nil {
		env := append(os.Environ(), "DOCKER_BUILDKIT=0", "DOCKER_CONFIG="+d.dir, "DOCKER_HOST=unix://"+filepath.Join(d.dir, "d.sock"))
		out = append(out, s.engine("docker", s.port, func(args ...string) *exec.Cmd {
			cmd := d.command(args...)
			cmd.Env = env
			return cmd
		}))
		if program := os.Getenv("COMPOSE_BIN"); program != "" {
			out = append(out, s.compose(program, s.port+1, env))
		} else {
			s.b.Log("not compared with docker compose: COMPOSE_BIN names no program")
		}
	}
	podman := s.podman(s.port + 2)
	s.b.Cleanup(podman.remove) // unmounts what is in the temporary folder
	err := podman.update(0)
	podman.remove()
	if err != nil {
		s.b.Logf("podman: %v", err)
		s.b.Log("not compared with podman: it does not run here")
		return out
	}
	return append(out, podman)
}

// engine returns a peer with docker's commands.
func (s *sample) engine(name string, port int, command func(args ...string) *exec.Cmd, flags ...string) peer {
	remove := []string{"rm", "--force", "app", "config-server"}
	return peer{
		name: name, port: port,
		update: func(n int) error {
			image := fmt.Sprint("sample:", n)
			steps := [][]string{{"build", "--quiet", "--tag", image, s.at("build")}}
			if n > 0 {
				steps = append(steps, remove)
			}
			for _, program := range []string{"config-server", "app"} {
				args := []string{"run", "--detach", "--name", program, "--network", "host", "--memory", "64m"}
				args = append(append(args, flags...), "--env", fmt.Sprint("PORT=", port), "--env", fmt.Sprint("CONFIG_SERVER_PORT=", port+500))
				steps = append(steps, append(args, image, "/"+program))
			}
			for _, args := range steps {
				if err := ran(command(args...)); err != nil {
					return err
				}
			}
			return nil
		},
		remove: func() { _ = command(remove...).Run() },
	}
}

// compose returns docker compose as a peer.
func (s *sample) compose(program string, port int, env []string) peer {
	service := func(command string) string {
		return fmt.Sprintf("    image: sample:compose\n    command: [%s]\n    network_mode: host\n    mem_limit: 64m\n"+
			"    environment: {PORT: '%d', CONFIG_SERVER_PORT: '%d'}\n", command, port, port+500)
	}
	s.write("compose.yml", "name: sample\nservices:\n  config-server:\n    build: build\n"+service("/config-server")+"  app:\n"+service("/app"))
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, append([]string{"--file", s.at("compose.yml")}, args...)...)
		cmd.Env = env
		return cmd
	}
	return peer{
		name: "compose", port: port,
		update: func(int) error { return ran(command("up", "--build", "--detach")) },
		remove: func() { _ = command("down", "--timeout", "0").Run() },
	}
}

// podman returns podman with its own storage as a peer. It runs where the limits of open
// files and processes cannot be raised.
func (s *sample) podman(port int) peer {
	dir := s.b.TempDir()
	command := func(args ...string) *exec.Cmd {
		return exec.Command("podman", append([]string{
			"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"),
			"--cgroup-manager", "cgroupfs", "--events-backend", "file", "--storage-driver", "overlay", "--runtime", "runc", // as the others
		}, args...)...)
	}
	return s.engine("podman", port, command, "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
}

// ran runs a command. Its error has the output.
func ran(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

func (s *sample) must(err error) {
	s.b.Helper()
	if err != nil {
		s.b.Fatal(err)
	}
}

// sample is the built app with a sidecar.
type sample struct {
	b    *testing.B
	dir  string
	port int // first port of the peers
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
