//go:build bench

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// benchLogLines is the number of lines that are written and read.
func benchLogLines(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("DEW_BENCH_LINES"))
	if err != nil {
		return 1_000_000
	}
	b.Logf("%d lines", n)
	return n
}

// pushCount pushes an app that prints numbered lines.
func (c *cell) pushCount(lines, rate int) {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(c.root), "app")
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "testapp"), program, 0o755))
	text := fmt.Sprintf("applications:\n- {name: bench, path: %s, command: exec ./testapp count %d %d, memory: 256M, buildpacks: [binary_buildpack], health-check-type: process, no-route: true}\n", dir, lines, rate)
	file := filepath.Join(filepath.Dir(c.root), "manifest.yml")
	if err := errors.Join(err, os.WriteFile(file, []byte(text), 0o644)); err != nil {
		c.t.Fatal(err)
	}
	c.dew("push", "-f", file)
}

// printedAt returns the time in a line of the app.
func printedAt(line string) (time.Time, bool) {
	f := strings.Fields(line)
	if len(f) < 3 || f[0] != "out" && f[0] != "err" {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	return time.UnixMicro(n), err == nil
}

// span returns the time from the first printed line to the last stored line, by the
// timestamps of the stored lines.
func span(b *testing.B, stamped string, first string) time.Duration {
	b.Helper()
	began, ok := printedAt(first)
	if !ok {
		b.Fatalf("not a line of the app: %q", first)
	}
	var last time.Time
	for line := range strings.Lines(stamped) {
		stamp, _, _ := strings.Cut(line, " ")
		if t, err := time.Parse(time.RFC3339Nano, stamp); err == nil && t.After(last) {
			last = t
		}
	}
	if last.Before(began) {
		b.Fatalf("no stamp in %q", stamped)
	}
	return last.Sub(began)
}

// lastOf returns the starts of the last lines that the app prints to each stream.
func lastOf(lines int) []string { return []string{"end after", fmt.Sprintf("err %d ", lines/5-1)} }

// outputOf returns the output of a program.
func outputOf(b *testing.B, cmd *exec.Cmd) string {
	b.Helper()
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, &talk)
	}
	return string(out)
}

// timed runs a program and discards its output.
func timed(b *testing.B, make func() *exec.Cmd) time.Duration {
	b.Helper()
	var took []time.Duration
	for range 3 {
		cmd := make()
		began := time.Now()
		if err := cmd.Run(); err != nil { // a nil Stdout is /dev/null
			b.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
		}
		took = append(took, time.Since(began))
	}
	return median(took)
}

// BenchmarkLogs writes numbered lines of 100 bytes through a task into the store, and
// reads them all with dew logs. If Docker can be started, its json-file driver does the
// same for comparison.
func BenchmarkLogs(b *testing.B) {
	lines := benchLogLines(b)
	c := newCell(b, "--log-retention", "1GiB", "--log-level", "info")
	c.start()
	idle := c.resident()
	c.pushCount(lines, 0)
	for _, last := range lastOf(lines) {
		c.eventually(last+" is stored", func() error {
			if out := outputOf(b, c.dewCommand("logs", "bench", "--recent", "--grep", last, "--raw")); out == "" {
				return errors.New("not yet")
			}
			return nil
		})
	}
	wrote := span(b, outputOf(b, c.dewCommand("logs", "bench", "--recent", "-n", "3", "--process", "web")), c.firstLine(b))
	read := timed(b, func() *exec.Cmd {
		return c.dewCommand("logs", "bench", "--recent", "-n", strconv.Itoa(lines), "--raw")
	})
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(lines)/wrote.Seconds(), "dew-written/s")
	b.ReportMetric(float64(lines)/read.Seconds(), "dew-read/s")
	b.ReportMetric(idle, "MB-before")
	b.ReportMetric(c.resident(), "MB-after")
	d := startDocker(b)
	if d == nil {
		return
	}
	dockerWrote, dockerRead := d.measure(b, lines)
	b.ReportMetric(float64(lines)/dockerWrote.Seconds(), "docker-written/s")
	b.ReportMetric(float64(lines)/dockerRead.Seconds(), "docker-read/s")
	b.ReportMetric(dockerWrote.Seconds()/wrote.Seconds(), "times-docker-written")
	b.ReportMetric(dockerRead.Seconds()/read.Seconds(), "times-docker-read")
}

// firstLine returns the first line that the app printed.
func (c *cell) firstLine(b *testing.B) string {
	b.Helper()
	cmd := c.dewCommand("logs", "bench", "--recent", "-n", "1000000000", "--raw", "--stream", "out", "--process", "web")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return line
}

// BenchmarkLogsLate measures the delay of lines in a following dew logs at 10,000 lines
// a second.
func BenchmarkLogsLate(b *testing.B) {
	c := newCell(b, "--log-level", "info")
	c.start()
	c.pushCount(100_000, 10_000)
	late := c.follow(b, 80_000)
	slices.Sort(late)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(late[len(late)/2]), "ms-median")
	b.ReportMetric(ms(late[len(late)*99/100]), "ms-p99")
	b.ReportMetric(ms(late[len(late)-1]), "ms-worst")
}

// follow reads the next n printed lines, and returns their delays.
func (c *cell) follow(b *testing.B, n int) []time.Duration {
	b.Helper()
	cmd := c.dewCommand("logs", "bench", "-n", "0", "--raw")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	var late []time.Duration
	for s := bufio.NewScanner(out); len(late) < n && s.Scan(); {
		if at, ok := printedAt(s.Text()); ok {
			late = append(late, time.Since(at))
		} else if strings.HasPrefix(s.Text(), "end after") {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if len(late) == 0 {
		b.Fatal("nothing was printed")
	}
	return late
}

// BenchmarkLogsFollowers prints 100,000 lines a second, alone and with four following
// dew logs, and compares the times of printing.
func BenchmarkLogsFollowers(b *testing.B) {
	lines := benchLogLines(b) / 2
	var took []time.Duration
	for _, followers := range []int{0, 4} {
		c := newCell(b, "--log-level", "info", "--log-retention", "1GiB")
		c.start()
		c.pushCount(lines, 100_000)
		for range followers {
			cmd := c.dewCommand("logs", "bench", "-n", "0", "--raw")
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it was killed
			}()
		}
		var text string
		c.eventually("the end of the printing", func() error {
			if text = outputOf(b, c.dewCommand("logs", "bench", "--recent", "--grep", "end after", "--raw")); text == "" {
				return errors.New("not yet")
			}
			return nil
		})
		var n int64
		if _, err := fmt.Sscanf(text, "end after %d ms", &n); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Duration(n)*time.Millisecond)
		c.tearDown()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(lines)/took[0].Seconds(), "alone/s")
	b.ReportMetric(float64(lines)/took[1].Seconds(), "followed/s")
	b.ReportMetric(100*(took[1].Seconds()/took[0].Seconds()-1), "%slower")
}

// docker is a dockerd with its own containerd.
type docker struct {
	dir    string
	client string
}

// startDocker starts Debian's docker in its own folder, without changing the network.
// If that is not possible, it returns nil and logs the reason.
func startDocker(b *testing.B) *docker {
	b.Helper()
	for _, name := range []string{"/usr/sbin/dockerd", "/usr/bin/docker"} {
		if _, err := os.Stat(name); err != nil {
			b.Logf("not compared with docker: %v (apt-get install docker.io)", err)
			return nil
		}
	}
	dir, err := os.MkdirTemp("", "dewdocker")
	if err != nil {
		b.Fatal(err)
	}
	d := &docker{dir: dir, client: "/usr/bin/docker"}
	at := func(name string) string { return filepath.Join(dir, name) }
	config := at("containerd.toml")
	err = os.WriteFile(config, []byte("version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"), 0o600)
	if err := errors.Join(err, os.WriteFile(at("docker.json"), []byte("{}"), 0o600)); err != nil {
		b.Fatal(err)
	}
	var said bytes.Buffer
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		})
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) }) // after both have stopped
	run("containerd", "--config", config, "--root", at("containerd"), "--state", at("state"), "--address", at("c.sock"))
	awaitFile(b, at("c.sock"))
	run("/usr/sbin/dockerd", "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("pid"), "--host", "unix://"+at("d.sock"),
		"--containerd", at("c.sock"), "--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--containerd-namespace", "bench-docker", "--log-driver", "json-file", "--config-file", at("docker.json"))
	end := time.Now().Add(30 * time.Second)
	err = testkit.Until(func() error {
		out, err := d.command("version").CombinedOutput()
		if err != nil && time.Now().After(end) {
			err = testkit.Finally(fmt.Errorf("%w\n%s", err, out))
		}
		return err
	})
	if err != nil {
		b.Logf("docker: %v\n%s", err, &said)
		b.Log("not compared with docker: it does not start here")
		return nil
	}
	return d
}

func awaitFile(b *testing.B, path string) {
	b.Helper()
	testkit.Eventually(b, path+" is there", func() error {
		_, err := os.Stat(path)
		return err
	})
}

func (d *docker) command(args ...string) *exec.Cmd {
	return exec.Command(d.client, append([]string{"--host", "unix://" + filepath.Join(d.dir, "d.sock")}, args...)...)
}

// measure lets a container print the same lines, and reads them.
func (d *docker) measure(b *testing.B, lines int) (wrote, read time.Duration) {
	b.Helper()
	load := d.command("import", "-", "bench:1")
	load.Stdin = tree(b)
	outputOf(b, load)
	outputOf(b, d.command("run", "--detach", "--network", "none", "--name", "bench", "bench:1", "/testapp", "count", strconv.Itoa(lines), "0"))
	defer func() { _ = d.command("rm", "--force", "bench").Run() }()
	tail := 2000
	testkit.EventuallyTrue(b, "docker has the last lines", func() bool {
		out, err := d.command("logs", "--tail", strconv.Itoa(tail), "bench").CombinedOutput()
		missing := slices.DeleteFunc(lastOf(lines), func(last string) bool { return bytes.Contains(out, []byte(last)) })
		if len(missing) == 1 {
			tail = lines // one of the two streams can be much later than the other
		}
		return err == nil && len(missing) == 0
	})
	first := d.command("logs", "bench")
	out, err := first.StdoutPipe()
	if err == nil {
		err = first.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	_ = first.Process.Kill()
	_ = first.Wait() // it was killed
	both := d.command("logs", "--timestamps", "--tail", "3", "bench")
	stamped, err := both.CombinedOutput()
	if err != nil {
		b.Fatal(err)
	}
	wrote = span(b, string(stamped), line)
	return wrote, timed(b, func() *exec.Cmd { return d.command("logs", "bench") })
}

// tree returns a root file system with testapp in it.
func tree(b *testing.B) io.Reader {
	b.Helper()
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err != nil {
		b.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err = w.WriteHeader(&tar.Header{Name: "testapp", Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg})
	_, werr := w.Write(program)
	if err := errors.Join(err, werr, w.Close()); err != nil {
		b.Fatal(err)
	}
	return &buf
}
