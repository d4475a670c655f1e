//go:build integration

package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience limits every wait: only a hang reaches it.
const patience = 3 * time.Minute

// cell is one daemon with its programs. The tests share it, use it through dew and over
// HTTP, and leave no app behind.
type cell struct {
	dir, bin, run string
	extra         []string // additional flags
	defaultPorts  bool     // it has its own network
	log           string   // dewd's own log
	cmd           *exec.Cmd
	ended         chan struct{} // closed when dewd has exited
	status        struct{ Cell, API, Router, Domain string }
}

var dewd *cell

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "dew")
	if err == nil {
		err = os.Chmod(dir, 0o711) // users of containers find their root file system below it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	dewd = &cell{dir: dir, bin: os.Getenv("DEW_TEST_BIN"), run: filepath.Join(dir, "run"), log: filepath.Join(dir, "log")}
	if dewd.bin == "" {
		if dewd.bin, err = build(filepath.Join(dir, "bin")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	err = dewd.start()
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, dewd.end()); err != nil {
		log, _ := os.ReadFile(dewd.log) // as much of it as there is
		fmt.Fprintf(os.Stderr, "%v\n%s", err, log)
		return 1
	}
	return code
}

// build builds the programs of a release, and those of the example.
func build(bin string) (string, error) {
	for module, packages := range map[string][]string{
		"..": {"./cmd/dewd", "./cmd/dew", "./cmd/dew-init", "./cmd/dew-sftp", "./cmd/dew-static", "./cmd/dew-buildpack"},
		".":  {"./config-sidecar/app", "./config-sidecar/config-server"},
	} {
		c := exec.Command("go", append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", bin + "/"}, packages...)...)
		c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("cannot build the programs: %w\n%s", err, out)
		}
	}
	return bin, nil
}

// flags separate the daemon from every other one on the machine.
func (c *cell) flags() []string {
	all := []string{"--root", filepath.Join(c.dir, "root"), "--run", c.run, "--init", filepath.Join(c.bin, "dew-init"), "--log-reserve", "1MiB"}
	if !c.defaultPorts {
		all = append(all, "--listen", "127.0.0.1:0", "--router", "127.0.0.1:0", "--ssh", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--router-tls", "127.0.0.1:0")
	}
	return append(all, c.extra...)
}

func (c *cell) start() error {
	// If this folder exists, dewd starts its own containerd.
	if err := os.MkdirAll(filepath.Join(c.dir, "root", "containerd"), 0o700); err != nil {
		return err
	}
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close()
	c.cmd = exec.Command(filepath.Join(c.bin, "dewd"), c.flags()...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.ended = make(chan struct{})
	go func() {
		_ = c.cmd.Wait() // end checks its state
		close(c.ended)
	}()
	return until(func() error {
		select {
		case <-c.ended:
			return final{fmt.Errorf("dewd ended at its start: %s", c.cmd.ProcessState)}
		default:
		}
		r := c.dew("", "status", "--json")
		if r.code != 0 {
			return errors.New(r.err)
		}
		return json.Unmarshal([]byte(r.out), &c.status)
	})
}

// end stops dewd and all apps as a user does, and searches for leftovers.
func (c *cell) end() error {
	if c.cmd == nil || c.cmd.Process == nil {
		return nil
	}
	var errs []error
	if r := c.dew("", "shutdown", "--apps"); r.code != 0 {
		errs = append(errs, fmt.Errorf("dew shutdown --apps: status %d: %s", r.code, r.err))
	}
	select {
	case <-c.ended:
		if !c.cmd.ProcessState.Success() {
			errs = append(errs, fmt.Errorf("dewd left with %s, want status 0", c.cmd.ProcessState))
		}
	case <-time.After(patience):
		errs = append(errs, errors.New("dewd is there after dew shutdown"), c.cmd.Process.Kill())
		<-c.ended
	}
	errs = append(errs, until(c.leftovers), c.complaints()) // a process that was stopped can need a moment
	if err := errors.Join(errs...); err != nil {
		out, terr := exec.Command(filepath.Join(c.bin, "dewd"), append([]string{"teardown"}, c.flags()...)...).CombinedOutput()
		if terr != nil {
			err = errors.Join(err, fmt.Errorf("teardown: %w\n%s", terr, out))
		}
		return err
	}
	return nil
}

// leftovers returns traces of the cell outside its root: the run folder, processes and
// mounts.
func (c *cell) leftovers() error {
	var errs []error
	if _, err := os.Stat(c.run); !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, errors.New("shutdown left the run folder"), err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, c.dir+"/") {
			errs = append(errs, fmt.Errorf("shutdown left a mount: %s", line))
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	errs = append(errs, err)
	for _, name := range lines {
		b, _ := os.ReadFile(name) // a process that has exited since is fine
		if bytes.Contains(b, []byte(c.dir+"/")) {
			errs = append(errs, fmt.Errorf("shutdown left a process: %s %q", name, b))
		}
	}
	return errors.Join(errs...)
}

// complaints returns lines of dewd's own log that these tests must not cause.
func (c *cell) complaints() error {
	b, err := os.ReadFile(c.log)
	errs := []error{err}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			errs = append(errs, fmt.Errorf("dewd complains: %s", line))
		}
	}
	return errors.Join(errs...)
}

// final is an error that waiting does not change.
type final struct{ error }

// until retries until there is no error. After a hang it returns the last one.
func until(try func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if f := (final{}); errors.As(err, &f) {
			return f.error
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := until(try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// result is the result of a command.
type result struct {
	out, err string
	code     int
}

// dew runs the program in a folder.
func (c *cell) dew(dir string, args ...string) result {
	return c.within(2*patience, dir, "dew", args...)
}

// within runs a program in a folder, with the daemon's settings. Programs that wait
// have their own limits; this limit is only for a hang.
func (c *cell) within(limit time.Duration, dir, program string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !filepath.IsAbs(program) {
		program = filepath.Join(c.bin, program)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out, talk bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &talk
	cmd.Env = append(os.Environ(), "DEW_RUN="+c.run, "DEW_HOME="+c.dir, "CF_HOME="+c.dir)
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return result{err: err.Error(), code: -1}
	}
	return result{out: out.String(), err: talk.String(), code: cmd.ProcessState.ExitCode()}
}

// dew runs a command that must succeed.
func dew(t *testing.T, dir string, args ...string) result {
	t.Helper()
	r := dewd.dew(dir, args...)
	if r.code != 0 {
		t.Fatalf("dew %s: status %d\n%s%s", strings.Join(args, " "), r.code, r.err, r.out)
	}
	return r
}

// read runs a command that must succeed and decodes its output.
func read[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	r := dew(t, "", args...)
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("dew %s: %v\n%s", strings.Join(args, " "), err, r.out)
	}
	return v
}

// deleteLater deletes an app at the end of the test. Its log is removed with its last
// instance.
func deleteLater(t *testing.T, name string) {
	t.Cleanup(func() {
		guid := strings.TrimSpace(dewd.dew("", "app", name, "--guid").out)
		if r := dewd.dew("", "delete", "-f", name); r.code != 0 {
			t.Errorf("cannot delete %s: %s", name, r.err)
		}
		if guid == "" {
			return
		}
		err := until(func() error {
			_, err := os.Stat(filepath.Join(dewd.dir, "root", "logs", guid))
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("the log of app %s is still there", name))
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// page is the response to a request.
type page struct {
	status int
	header http.Header
	body   string
}

// get requests a path of an app from the router.
func get(t *testing.T, host, path string) page {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, dewd.status.Router+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host + "." + dewd.status.Domain
	return ask(t, http.DefaultTransport, req)
}

// socketRequest sends a request to the daemon as dew does, with a body that dew would not
// send.
func socketRequest(t *testing.T, method, path, contentType, body string) page {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://dew"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	socket := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dewd.run, "dew.sock"))
	}}
	return ask(t, socket, req)
}

func ask(t *testing.T, by http.RoundTripper, req *http.Request) page {
	t.Helper()
	resp, err := (&http.Client{Transport: by, Timeout: patience}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return page{status: resp.StatusCode, header: resp.Header, body: string(b)}
}
