//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/api/v3"
)

// shopManifest is an app whose program is started by a shell that exported a variable,
// in another folder than the start folder.
const shopManifest = `applications:
- name: shop
  buildpacks: [binary_buildpack]
  memory: 160M
  instances: 2
  health-check-type: process
  command: export LATE=set-by-command; cd sub && ../testapp serve 0.0.0.0:8080; exit 1
  processes:
  - type: worker
    memory: 64M
    instances: 1
    health-check-type: process
    command: ./testapp sleep
  sidecars:
  - name: config server
    process_types: [web]
    memory: 32M
    command: ./testapp serve 127.0.0.1:8181
`

// shop is a cell with that app, and the clients for it.
type shop struct {
	*cell
	dir    string
	guid   string
	worker string
	home   string // home folder of cf
}

func newShop(t *testing.T) *shop {
	t.Helper()
	for _, program := range []string{"ssh", "scp", "sftp"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: make setup-test installs it", program)
		}
	}
	s := &shop{cell: newCell(t), dir: t.TempDir(), home: t.TempDir()}
	s.start()
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"app/manifest.yml": shopManifest, "app/testapp": string(program), "app/sub/file": "in sub\n",
		"app/.profile.d/one.sh": "export FROM_PROFILE='with two  blanks'\nexport PATH=$PATH:/opt/from-profile\n",
		"askpass":               "#!/bin/sh\nexec '" + filepath.Join(programs, "dew") + "' ssh-code\n",
	} {
		file := filepath.Join(s.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(data), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	s.dew("push", "-p", filepath.Join(s.dir, "app"), "-f", filepath.Join(s.dir, "app/manifest.yml"))
	s.guid = s.output("app", "shop", "--guid")
	var ps v3.List[v3.Process]
	s.curl("/v3/apps/"+s.guid+"/processes?types=worker", &ps)
	s.worker = ps.Resources[0].GUID
	s.up()
	return s
}

// output returns the output of a dew command.
func (s *shop) output(args ...string) string {
	s.t.Helper()
	out, err := s.dewCommand(args...).Output()
	if err != nil {
		s.t.Fatalf("dew %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func (s *shop) curl(path string, into any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.output("curl", path)), into); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
}

// up waits until every instance runs.
func (s *shop) up() {
	s.t.Helper()
	s.eventually("all instances run", func() error {
		for guid, want := range map[string]int{s.guid: 2, s.worker: 1} {
			var st v3.Stats
			s.curl("/v3/processes/"+guid+"/stats", &st)
			n := 0
			for _, i := range st.Resources {
				if i.State == "RUNNING" {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("%d of %d instances of %s", n, want, guid)
			}
		}
		return nil
	})
}

// code returns a one-time password, with its address.
func (s *shop) code() v3.SSHCode {
	s.t.Helper()
	var c v3.SSHCode
	if err := json.Unmarshal([]byte(s.output("ssh-code", "--json")), &c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// dial logs in with a library, which is faster than a program.
func (s *shop) dial(user string) *ssh.Client {
	s.t.Helper()
	c, err := s.tryDial(user, s.code())
	if err != nil {
		s.t.Fatalf("login as %s: %v", user, err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *shop) tryDial(user string, code v3.SSHCode) (*ssh.Client, error) {
	return ssh.Dial("tcp", code.Address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.Password(code.Code)}, Timeout: patience,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if got := strings.TrimPrefix(ssh.FingerprintSHA256(key), "SHA256:"); got != code.Fingerprint {
				return fmt.Errorf("fingerprint %s, want %s", got, code.Fingerprint)
			}
			return nil
		},
	})
}

// sshLogin is one way to open a session.
type sshLogin struct {
	index    int
	process  string // empty: web
	command  string // empty: a shell
	tty      bool
	nothing  bool
	forwards []string
}

// sshClient creates the command line of a visit.
type sshClient struct {
	name string
	args func(v sshLogin) *exec.Cmd
}

// clients returns dew, OpenSSH and, if CF_BIN names it, the cf CLI.
func (s *shop) clients() []sshClient {
	s.t.Helper()
	all := []sshClient{{"dew", s.byDew}, {"ssh", s.byOpenSSH}}
	bin := os.Getenv("CF_BIN")
	if bin == "" {
		return all
	}
	var cr v3.Credentials
	if err := json.Unmarshal([]byte(s.output("credentials", "--json")), &cr); err != nil {
		s.t.Fatal(err)
	}
	cf := func(args ...string) *exec.Cmd {
		c := exec.Command(bin, args...)
		c.Env = append(os.Environ(), "CF_HOME="+s.home)
		return c
	}
	for _, args := range [][]string{{"api", cr.API}, {"auth", cr.Username, cr.Password}, {"target", "-o", "local", "-s", "dev"}} {
		if out, err := cf(args...).CombinedOutput(); err != nil {
			s.t.Fatalf("cf %s: %v\n%s", args[0], err, out)
		}
	}
	return append(all, sshClient{"cf", func(v sshLogin) *exec.Cmd { return cf(s.sshArgs(v)...) }})
}

func (s *shop) byDew(v sshLogin) *exec.Cmd { return s.dewCommand(s.sshArgs(v)...) }

// sshArgs returns the arguments that dew and cf have in common.
func (s *shop) sshArgs(v sshLogin) []string {
	args := []string{"ssh", "shop", "-i", strconv.Itoa(v.index)}
	if v.process != "" {
		args = append(args, "--process", v.process)
	}
	if v.command != "" {
		args = append(args, "-c", v.command)
	}
	if v.tty {
		args = append(args, "-t")
	}
	if v.nothing {
		args = append(args, "-N")
	}
	for _, f := range v.forwards {
		args = append(args, "-L", f)
	}
	return args
}

// openSSHArgs returns arguments that log in with a code and store nothing.
func (s *shop) openSSHArgs(guid string, index int) []string {
	return []string{
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "PreferredAuthentications=password", "-o", "NumberOfPasswordPrompts=1", "-F", "none",
		"-o", fmt.Sprintf("User=cf:%s/%d", guid, index), "-o", "Port=" + s.sshPort(),
	}
}

func (s *shop) sshPort() string {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.code().Address)
	if err != nil {
		s.t.Fatal(err)
	}
	return port
}

func (s *shop) openSSH(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "DEW_RUN="+s.run, "SSH_ASKPASS="+filepath.Join(s.dir, "askpass"), "SSH_ASKPASS_REQUIRE=force")
	c.Dir = s.dir
	return c
}

func (s *shop) byOpenSSH(v sshLogin) *exec.Cmd {
	guid := s.guid
	if v.process == "worker" {
		guid = s.worker
	}
	args := s.openSSHArgs(guid, v.index)
	if v.tty {
		args = append(args, "-t")
	}
	if v.nothing {
		args = append(args, "-N")
	}
	for _, f := range v.forwards {
		args = append(args, "-L", f)
	}
	args = append(args, "127.0.0.1")
	if v.command != "" {
		args = append(args, v.command)
	}
	return s.openSSH("ssh", args...)
}

// outcome is the result of a program.
type outcome struct {
	out, err string
	code     int
}

func finish(t testing.TB, c *exec.Cmd) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", c, err)
	}
	return outcome{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// terminal is a terminal with a program on it.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	seen   chan []byte
	text   strings.Builder
}

// onTerminal runs a program on a terminal of the given size.
func onTerminal(t *testing.T, c *exec.Cmd, columns, rows uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &terminal{t: t, master: master, cmd: c, seen: make(chan []byte, 100)}
	var unlock, number int32
	s.ioctl(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	s.ioctl(syscall.TIOCGPTN, unsafe.Pointer(&number))
	s.resize(columns, rows)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	go func() {
		defer close(s.seen)
		for {
			b := make([]byte, 4096)
			n, err := master.Read(b)
			if err != nil {
				return
			}
			s.seen <- b[:n]
		}
	}()
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		_ = master.Close()
	})
	return s
}

func (s *terminal) ioctl(what uintptr, arg unsafe.Pointer) {
	s.t.Helper()
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, s.master.Fd(), what, uintptr(arg)); e != 0 {
		s.t.Fatal(e)
	}
}

func (s *terminal) resize(columns, rows uint16) {
	s.t.Helper()
	size := [4]uint16{rows, columns}
	s.ioctl(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
}

func (s *terminal) typed(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// retryResize is how long a terminal waits for the effect of a resize.
const retryResize = 20 * time.Second

// shows reads until the screen shows text, and returns false after a time limit.
func (s *terminal) shows(text string, limit time.Duration) bool {
	s.t.Helper()
	late := time.After(limit)
	for !strings.Contains(s.text.String(), text) {
		select {
		case b, open := <-s.seen:
			if !open {
				s.t.Fatalf("%q never came; the screen:\n%s", text, s.text.String())
			}
			s.text.Write(b)
		case <-late:
			return false
		}
	}
	return true
}

// await reads until the screen shows text.
func (s *terminal) await(text string) { s.awaitAfter("", text) }

// awaitAfter waits until the screen shows text after the last position of mark.
func (s *terminal) awaitAfter(mark, text string) {
	s.t.Helper()
	late := time.After(patience)
	shown := func() bool {
		i := strings.LastIndex(s.text.String(), mark)
		return i >= 0 && strings.Contains(s.text.String()[i:], text)
	}
	if mark == "" {
		shown = func() bool { return strings.Contains(s.text.String(), text) }
	}
	for !shown() {
		select {
		case b, ok := <-s.seen:
			if !ok {
				s.t.Fatalf("the program ended before %q came; the screen:\n%s", text, s.text.String())
			}
			s.text.Write(b)
		case <-late:
			s.t.Fatalf("%q never came; the screen:\n%s", text, s.text.String())
		}
	}
}

// end waits for the program, and reads the rest of its output.
func (s *terminal) end() int {
	s.t.Helper()
	for b := range s.seen {
		s.text.Write(b)
	}
	_ = s.cmd.Wait() // its status is checked below
	return s.cmd.ProcessState.ExitCode()
}
