package mainprocess

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/mainfile"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/runtime/userns"
	"github.com/dewrun/dew/testkit"
)

// requested returns a main process that PID 1 can start.
func requested(t *testing.T) *Main {
	t.Helper()
	m := &Main{Dir: t.TempDir()}
	if found, err := m.Requested(); found || err != nil {
		t.Errorf("requested before it was = %v, %v", found, err)
	}
	p := &specs.Process{Args: []string{"/bin/true"}, Cwd: "/", User: specs.User{UID: 2000, GID: 2001}, Env: []string{"A=1"}}
	if err := m.Request(p, userns.Range{}); err != nil {
		t.Fatal(err)
	}
	if found, err := m.Requested(); !found || err != nil {
		t.Errorf("requested = %v, %v", found, err)
	}
	return m
}

// report writes into the file as PID 1 does.
func report(t *testing.T, m *Main, write func(f *os.File) error) {
	t.Helper()
	f, err := os.OpenFile(m.Path(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// self is a process that runs until the end of the test.
func self() runfile.Process {
	return runfile.Process{PID: os.Getpid(), Born: process.BornAt(os.Getpid())}
}

func TestRequest(t *testing.T) {
	m := requested(t)
	b, err := os.ReadFile(m.Path())
	if err != nil {
		t.Fatal(err)
	}
	r, err := mainfile.Decode(b)
	if err != nil || r.UID != 2000 || r.GID != 2001 || r.Dir != "/" || len(r.Args) != 1 || len(r.Env) != 1 {
		t.Errorf("request = %+v, %v", r, err)
	}
	st, err := os.Stat(m.Path())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", st.Mode(), err)
	}
	if err := m.Request(&specs.Process{Args: []string{"a\x00"}}, userns.Range{}); err == nil {
		t.Error("an argument with a NUL byte was accepted")
	}
}

// PID 1 reports why it could not start the process, or ends before it can.
func TestNotStarted(t *testing.T) {
	m := requested(t)
	ended := runfile.Process{PID: testkit.NoPID, Born: 1}
	if _, err := m.Started(t.Context(), ended); err == nil || !strings.Contains(err.Error(), "ended before it started") {
		t.Errorf("without PID 1: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Started(ctx, self()); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	report(t, m, func(f *os.File) error { return mainfile.WriteStart(f, mainfile.Start{Failure: "cannot enter"}) })
	failed := (*FailedError)(nil)
	if _, err := m.Started(t.Context(), self()); !errors.As(err, &failed) || failed.Reason != "cannot enter" {
		t.Errorf("failed: %v", err)
	}
}

// The status comes from the report, even if PID 1 is gone by then.
func TestWait(t *testing.T) {
	for name, init := range map[string]runfile.Process{"running": self(), "ended": {PID: testkit.NoPID, Born: 1}, "not known": {}} {
		m := requested(t)
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p := runfile.Process{PID: cmd.Process.Pid, Born: process.BornAt(cmd.Process.Pid)}
		at := time.Unix(1_763_160_000, 5)
		report(t, m, func(f *os.File) error { return mainfile.WriteExit(f, mainfile.Exit{Code: 3, At: at}) })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := m.Wait(ctx, p, Parents{Init: init}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a report about a running process ended the wait: %v", name, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if code, got, err := m.Wait(t.Context(), p, Parents{Init: init}); code != 3 || !got.Equal(at) || err != nil {
			t.Errorf("%s: %d at %v, %v, want 3 at %v", name, code, got, err, at)
		}
		_ = cmd.Wait()
	}
}

// What a process does after its shim has ended is not the fault of the app.
func TestWaitWithoutShim(t *testing.T) {
	m := requested(t)
	report(t, m, func(f *os.File) error { return mainfile.WriteExit(f, mainfile.Exit{Code: 141, At: time.Unix(1, 0)}) })
	gone := Parents{Init: self(), Shim: runfile.Process{PID: testkit.NoPID, Born: 1}}
	if code, _, err := m.Wait(t.Context(), runfile.Process{}, gone); !errors.Is(err, errNoShim) {
		t.Errorf("status = %d, %v, want that the shim is gone", code, err)
	}
}

// PID 1 can write the report a moment after the exit. If it never does, the status is lost.
func TestLateReport(t *testing.T) {
	m, never := requested(t), requested(t)
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(time.Second)
			report(t, m, func(f *os.File) error { return mainfile.WriteExit(f, mainfile.Exit{Code: 3, At: time.Unix(1, 0)}) })
		}()
		if code, _, err := m.Wait(t.Context(), runfile.Process{}, Parents{Init: self(), Shim: self()}); code != 3 || err != nil {
			t.Errorf("status = %d, %v, want 3", code, err)
		}
		begin := time.Now()
		if _, _, err := never.Wait(t.Context(), runfile.Process{}, Parents{Init: self()}); err == nil || time.Since(begin) < reportLimit {
			t.Errorf("without a report: %v after %v", err, time.Since(begin))
		}
	})
}

// The wait ends when the shim has closed the files.
func TestCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Copied(ctx, os.Getpid(), path); !errors.Is(err, context.Canceled) {
		t.Errorf("with an open file: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- Copied(t.Context(), os.Getpid(), path, path+".missing") }()
	f.Close()
	if err := <-done; err != nil {
		t.Errorf("with a closed file: %v", err)
	}
	if err := Copied(t.Context(), testkit.NoPID, path); err != nil {
		t.Errorf("without a shim: %v", err)
	}
}
