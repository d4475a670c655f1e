//go:build integration

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// An SSH session has the same view as the app, with every client.
func TestSSH(t *testing.T) {
	runParallel(t)
	s := newShop(t)
	clients := s.clients()
	for _, part := range []struct {
		name string
		test func(t *testing.T, s *shop, clients []sshClient)
	}{
		{"Commands", sshCommands},
		{"SameEnvironment", sshEnvironment},
		{"Terminal", sshTerminal},
		{"Forwards", sshForwards},
		{"CompleteOutput", sshOutput},
		{"Files", sshFiles},
		{"Refused", sshRefused},
		{"Vanishing", sshVanishing},
		{"ManyAtOnce", sshMany},
		{"KillTheSidecar", sshSeed},
		{"DaemonKilled", sshDaemonKilled},
		{"Stopped", sshStopped},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			s.t = t
			part.test(t, s, clients)
			s.nothingLeft()
		})
		s.t = t
		if !ok {
			return // further checks would find nothing new
		}
	}
}

// nothingLeft waits until nothing is left of the sessions.
func (s *shop) nothingLeft() {
	s.t.Helper()
	s.eventually("nothing is left of sessions", func() error {
		for id, leaves := range s.leaves() {
			for leaf := range leaves {
				if strings.HasPrefix(leaf, "ssh-") {
					return fmt.Errorf("instance %s has the leaf %s", id, leaf)
				}
			}
		}
		pipes, err := filepath.Glob(filepath.Join(s.run, "instances", "*", "ssh-*"))
		if len(pipes) > 0 {
			err = errors.Join(err, fmt.Errorf("pipes are left: %v", pipes))
		}
		return err
	})
}

func sshCommands(t *testing.T, s *shop, clients []sshClient) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			got := finish(t, c.args(sshLogin{command: `echo $VCAP_APPLICATION; pwd; ls; echo trouble >&2; exit 7`}))
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			if len(lines) != 3 || !strings.Contains(lines[0], `"application_name":"shop"`) || lines[1] != "/home/vcap/app/sub" || lines[2] != "file" {
				t.Errorf("printed %q, want VCAP_APPLICATION, the folder of the program and its file", got.out)
			}
			if strings.TrimSpace(got.err) != "trouble" && !strings.HasPrefix(got.err, "trouble\n") || strings.Contains(got.out, "trouble") {
				t.Errorf("stderr is %q, want trouble there alone", got.err)
			}
			if got.code != 7 {
				t.Errorf("exit status %d, want 7", got.code)
			}
			for _, tt := range []struct {
				v    sshLogin
				want string
			}{
				{sshLogin{index: 1, command: "echo $CF_INSTANCE_INDEX"}, "1\n"},
				{sshLogin{process: "worker", command: "pwd"}, "/home/vcap/app\n"},
				{sshLogin{command: "exec id -u"}, "2000\n"},
			} {
				if got := finish(t, c.args(tt.v)); got.out != tt.want || got.code != 0 {
					t.Errorf("%+v printed %q and ended with %d (%s), want %q", tt.v, got.out, got.code, got.err, tt.want)
				}
			}
			shell := c.args(sshLogin{})
			shell.Stdin = strings.NewReader("echo typed\nexit 4\n")
			if got := finish(t, shell); got.out != "typed\n" || got.code != 4 {
				t.Errorf("a shell printed %q and ended with %d (%s), want typed and 4", got.out, got.code, got.err)
			}
		})
	}
}

// shellsOwn are variables that a shell sets by itself.
var shellsOwn = []string{"_", "SHLVL", "PWD", "OLDPWD", "TERM"}

func withoutShellsOwn(environ string) []string {
	var out []string
	for _, kv := range strings.Split(environ, "\x00") {
		name, _, _ := strings.Cut(kv, "=")
		if kv != "" && !slices.Contains(shellsOwn, name) {
			out = append(out, kv)
		}
	}
	slices.Sort(out)
	return out
}

func sshEnvironment(t *testing.T, s *shop, clients []sshClient) {
	for _, c := range clients {
		got := finish(t, c.args(sshLogin{command: "cat /proc/self/environ; cut -d: -f3 /proc/self/cgroup | sort -u >&2"}))
		if want := s.environ("main", "serve"); !slices.Contains(want, "LATE=set-by-command") || !slices.Contains(want, "FROM_PROFILE=with two  blanks") {
			t.Fatalf("the app itself lacks variables: %q", want)
		} else if diff := cmp.Diff(withoutShellsOwn(got.out), want); diff != "" {
			t.Errorf("%s: environment (-session +app):\n%s", c.name, diff)
		}
		if !strings.Contains(got.err, "/../ssh-") {
			t.Errorf("%s: the session's cgroups are %q, want a leaf of its own", c.name, got.err)
		}
	}
	got := finish(t, s.dewCommand("ssh", "shop", "--sidecar", "config server", "-c", "cat /proc/self/environ"))
	if diff := cmp.Diff(withoutShellsOwn(got.out), s.environ("sidecar-0", "serve")); diff != "" {
		t.Errorf("environment beside the sidecar (-session +sidecar):\n%s", diff)
	}
}

// environ returns the environment of the program in a leaf of instance 0.
func (s *shop) environ(leaf, word string) []string {
	s.t.Helper()
	for _, leaves := range s.leaves() {
		for _, pid := range leaves[leaf] {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			args := strings.Split(string(cmdline), "\x00")
			if err == nil && len(args) > 1 && args[1] == word && strings.Contains(string(environ), "CF_INSTANCE_INDEX=0\x00") {
				return withoutShellsOwn(string(environ))
			}
		}
	}
	s.t.Fatalf("no program %s in leaf %s", word, leaf)
	return nil
}

func sshTerminal(t *testing.T, s *shop, clients []sshClient) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			scr := onTerminal(t, c.args(sshLogin{}), 101, 37)
			scr.await("$ ")
			scr.typed("stty size; tty; echo term-$TERM\r")
			scr.await("37 101")
			scr.await("/dev/pts/")
			scr.resize(88, 22)
			// The resize is asynchronous, so the program polls until it has the new
			// size.
			scr.typed("until [ \"$(stty size)\" = '22 88' ]; do sleep 0.05; done; echo re\"\"sized\r")
			// On a busy machine a resize rarely has no effect with OpenSSH, for a reason
			// that is not known. Then the size changes again, as if a user did it.
			for n := 1; !scr.shows("resized", retryResize); n++ {
				if n > 5 {
					t.Fatalf("%d resizes had no effect; the screen:\n%s", n, scr.text.String())
				}
				t.Logf("resize %d had no effect", n)
				scr.resize(89, 22)
				scr.resize(88, 22)
			}
			// A program that has printed something is in the foreground: the key is for
			// it, not for the shell that starts it.
			scr.typed("sh -c 'echo as\"\"leep; exec sleep 1000'\r")
			scr.await("asleep")
			scr.typed("\x03")
			scr.typed("echo inter\"\"rupted; exit 9\r")
			scr.await("interrupted")
			if code := scr.end(); code != 9 {
				t.Errorf("exit status %d, want 9; the screen:\n%s", code, scr.text.String())
			}
		})
	}
}

func sshForwards(t *testing.T, s *shop, clients []sshClient) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			app, sidecar := freeAddress(t), freeAddress(t)
			cmd := c.args(sshLogin{nothing: true, forwards: []string{app + ":localhost:8080", sidecar + ":127.0.0.1:8181"}})
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			for _, at := range []string{app, sidecar} {
				s.eventually("the forward "+at+" answers", func() error {
					resp, err := http.Get("http://" + at + "/")
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello\n" {
						return fmt.Errorf("it says %q, %w", b, err)
					}
					return nil
				})
			}
		})
	}
	// A socket inside the instance, and a link to one of the machine.
	c := s.dial("cf:" + s.guid + "/0")
	inner, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	if err := inner.Start("ln -sf " + filepath.Join(s.run, "dew.sock") + " /tmp/link.sock; exec ../testapp serve /tmp/app.sock"); err != nil {
		t.Fatal(err)
	}
	s.eventually("the socket answers", func() error {
		conn, err := c.Dial("unix", "/tmp/app.sock")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		b, rerr := io.ReadAll(conn)
		if err := errors.Join(err, rerr); err != nil || !strings.Contains(string(b), "hello") {
			return fmt.Errorf("it says %q, %w", b, err)
		}
		return nil
	})
	if conn, err := c.Dial("unix", "/tmp/link.sock"); err == nil {
		_ = conn.Close()
		t.Error("a link in the instance leads to a socket of the machine")
	}
	_ = c.Close()
}

// No byte of the output is missing at the end, on either stream.
func sshOutput(t *testing.T, s *shop, _ []sshClient) {
	const size = 1 << 20
	c := s.dial("cf:" + s.guid + "/0")
	for i := range rounds(12, 1000) {
		ses, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		ses.Stdout, ses.Stderr = &out, &errs
		want := fmt.Sprintf("%07d\n", i)
		err = ses.Run(fmt.Sprintf("yes %s | head -c %d; yes %s | head -c %d >&2", want[:7], size, want[:7], size/4))
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if out.String() != strings.Repeat(want, size/8) || errs.String() != strings.Repeat(want, size/4/8) {
			t.Fatalf("round %d: %d bytes of stdout and %d of stderr, want %d and %d", i, out.Len(), errs.Len(), size, size/4)
		}
	}
	for i := range rounds(3, 100) {
		ses, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		ses.Stdout = &out
		if err := ses.RequestPty("xterm", 24, 80, nil); err != nil {
			t.Fatal(err)
		}
		if err := ses.Run(fmt.Sprintf("yes 1234567 | head -c %d", size)); err != nil || out.Len() != size+size/8 {
			t.Fatalf("terminal, round %d: %d bytes, %v; want %d", i, out.Len(), err, size+size/8)
		}
	}
	// A client that reads late also gets all of it.
	ses, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := ses.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ses.Start(fmt.Sprintf("head -c %d /dev/zero", 8*size)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the client reads late: containerd waits for a reader for less time
	if n, err := io.Copy(io.Discard, out); err != nil || n != 8*size {
		t.Errorf("a late reader got %d bytes, %v; want %d", n, err, 8*size)
	}
	_ = c.Close()
}

// Files are the same after copying them in and out, with every program that copies.
func sshFiles(t *testing.T, s *shop, _ []sshClient) {
	size := int64(rounds(3<<20, 1<<30)) // larger than a channel's window
	big := filepath.Join(s.dir, "big")
	sum := randomFile(t, big, size)
	args := func(more ...string) []string { return append(s.openSSHArgs(s.worker, 0), more...) }
	at := "127.0.0.1:/home/vcap/app/copy"
	batch := filepath.Join(s.dir, "batch")
	if err := os.WriteFile(batch, []byte("put big /home/vcap/app/copy\nget /home/vcap/app/copy back\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		do   []*exec.Cmd
	}{
		{"scp", []*exec.Cmd{s.openSSH("scp", args("big", at)...), s.openSSH("scp", args(at, "back")...)}},
		{"scp -O", []*exec.Cmd{s.openSSH("scp", args("-O", "big", at)...), s.openSSH("scp", args("-O", at, "back")...)}},
		{"sftp", []*exec.Cmd{s.openSSH("sftp", args("-o", "BatchMode=no", "-b", batch, "127.0.0.1")...)}},
		{"dew cp", []*exec.Cmd{
			s.dewCommand("cp", "--process", "worker", big, "shop:copy"),
			s.dewCommand("cp", "--process", "worker", "shop:copy", filepath.Join(s.dir, "back")),
		}},
		{"ssh cat", nil},
	} {
		back := filepath.Join(s.dir, "back")
		if err := os.Remove(back); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, c := range tt.do {
			if got := finish(t, c); got.code != 0 {
				t.Fatalf("%s: %s ended with %d: %s%s", tt.name, c, got.code, got.out, got.err)
			}
		}
		if tt.do == nil {
			throughCat(t, s, big, back)
		}
		if got := sumOf(t, back); got != sum {
			t.Errorf("%s: what came back differs", tt.name)
		}
	}
	sshTrees(t, s)
}

// throughCat copies only through the streams of a session.
func throughCat(t *testing.T, s *shop, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := s.byOpenSSH(sshLogin{command: "cat"})
	c.Stdin, c.Stdout = in, out
	if err := c.Run(); err != nil {
		t.Fatalf("ssh cat: %v", err)
	}
}

// sshTrees copies folders with their contents.
func sshTrees(t *testing.T, s *shop) {
	t.Helper()
	tree := filepath.Join(s.dir, "tree")
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "a", "b"), 0o755),
		os.WriteFile(filepath.Join(tree, "a", "run.sh"), []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile(filepath.Join(tree, "a", "b", "empty"), nil, 0o640),
		os.Symlink("run.sh", filepath.Join(tree, "a", "link"))); err != nil {
		t.Fatal(err)
	}
	s.dew("cp", "-r", tree, "shop:/tmp/tree")
	s.dew("cp", "-r", "shop:/tmp/tree", filepath.Join(s.dir, "tree2"))
	if got := finish(t, exec.Command("diff", "-r", "--no-dereference", tree, filepath.Join(s.dir, "tree2"))); got.code != 0 {
		t.Errorf("a folder came back changed: %s%s", got.out, got.err)
	}
	if info, err := os.Stat(filepath.Join(s.dir, "tree2", "a", "run.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of a program = %v, %v; want 755", info, err)
	}
	if got := finish(t, s.dewCommand("cp", tree, "shop:/tmp/tree3")); got.code == 0 || !strings.Contains(got.err, "-r") {
		t.Errorf("a folder without -r: %+v, want to be told of -r", got)
	}
}

func randomFile(t *testing.T, path string, size int64) [sha256.Size]byte {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8([32]byte{}), size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func sumOf(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
