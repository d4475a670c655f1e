//go:build integration

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/session"
	"github.com/dewrun/dew/runtime/process"
)

// enter opens a session next to main.
func (w *world) enter(p app.Process, s runtime.ExecSpec) runtime.Session {
	w.t.Helper()
	ses, err := w.sup.Exec(w.t.Context(), runtime.ExecTarget{Process: p.GUID}, s)
	if err != nil {
		w.t.Fatalf("Exec %+v: %v", s, err)
	}
	w.t.Cleanup(func() { _ = ses.Close() })
	return ses
}

// command runs a command in a session and returns its output.
func (w *world) command(p app.Process, command string) (string, runtime.SessionEnd) {
	w.t.Helper()
	out, end, err := w.tryCommand(p, command)
	if err != nil {
		w.t.Fatal(err)
	}
	return out, end
}

func (w *world) tryCommand(p app.Process, command string) (string, runtime.SessionEnd, error) {
	ses, err := w.sup.Exec(w.t.Context(), runtime.ExecTarget{Process: p.GUID}, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: command})
	if err != nil {
		return "", runtime.SessionEnd{}, err
	}
	out, err := io.ReadAll(ses.Streams().Out)
	end, werr := ses.Wait(w.t.Context())
	return string(out), end, errors.Join(err, werr, ses.Close())
}

// Sessions leave nothing behind, however they ended: no process, leaf, pipe, descriptor
// or goroutine, in the daemon and in the shim.
func TestSessionsLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "sessio", memory: 128, command: "exec ./testapp sleep", sidecars: []app.Sidecar{sidecar("s", idle, 32)}})
	st := w.running(p)
	round := func() {
		for _, c := range []string{"exit 0", "sleep 1000 & exit 1", "kill -9 $$", "head -c 300000 /dev/zero", "nosuchthing"} {
			w.command(p, c)
		}
		terminal := &runtime.Terminal{Size: runtime.Size{Columns: 80, Rows: 24}}
		for _, s := range []runtime.ExecSpec{
			{Kind: runtime.ExecShell},
			{Kind: runtime.ExecShell, TTY: terminal},
			{Kind: runtime.ExecCommand, Command: "yes", TTY: terminal}, // its output is not read
			{Kind: runtime.ExecCommand, Command: "yes"},
			{Kind: runtime.ExecCommand, Command: "trap '' TERM HUP; sleep 1000"},
		} {
			if err := w.enter(p, s).Close(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.sup.Exec(t.Context(), runtime.ExecTarget{Process: p.GUID}, runtime.ExecSpec{Kind: runtime.ExecSocket, Command: "/no/socket"})
		if err == nil || !strings.Contains(err.Error(), "cannot connect to /no/socket") {
			t.Fatalf("a socket that is not there: %v", err)
		}
	}
	round()
	before, shim := w.settled(t), w.shimFiles(st.Instance)
	for range times(3, 50) {
		round()
	}
	w.eventually("the same as before", func() error {
		if diff := cmp.Diff(before, w.census(t)); diff != "" {
			return fmt.Errorf("(-before +after):\n%s", diff)
		}
		if now := w.shimFiles(st.Instance); now > shim {
			return fmt.Errorf("the shim has %d files open, and had %d", now, shim)
		}
		pipes, err := filepath.Glob(filepath.Join(w.engine.instanceDir(st.Instance), session.Prefix+"*"))
		if err == nil && len(pipes) > 0 {
			err = fmt.Errorf("pipes are left: %v", pipes)
		}
		return err
	})
	if now := w.running(p); now.Instance != st.Instance {
		t.Error("the instance was replaced")
	}
}

// shimFiles counts the open files of the shim of an instance.
func (w *world) shimFiles(id runtime.InstanceID) int {
	w.t.Helper()
	fds, err := os.ReadDir(process.File(w.engine.known.get(id).init.shim.PID, "fd"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(fds)
}

// The memory of a session is charged to its instance, and a session that uses too much
// is killed alone.
func TestSessionMemory(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "sesmem", memory: 128, command: "exec ./testapp sleep"})
	st := w.running(p)
	out, end := w.command(p, "./testapp alloc 300")
	if end.Code != 137 || !strings.Contains(out, "allocating") {
		t.Errorf("a session that took 300 of 128 MiB printed %q and ended with %+v, want 137", out, end)
	}
	if now := w.running(p); now.Instance != st.Instance {
		t.Error("the instance was replaced")
	}
	if rs, err := runtime.NewExitLog(w.db, 0).Process(p.GUID); err != nil || len(rs) > 0 {
		t.Errorf("%d exit records, %v; want none", len(rs), err)
	}
}

// The app survives its sessions: many that start at once, and many small programs in
// one session, although the app's own process is the largest.
func TestSessionsYieldMemory(t *testing.T) {
	w := newWorld(t)
	w.boot()
	small := w.put(testApp{name: "sescro", memory: 48, command: "exec ./testapp sleep"})
	large := w.put(testApp{name: "sesmob", memory: 64, command: "exec ./testapp alloc 30"})
	before := []runtime.InstanceID{w.running(small).Instance, w.running(large).Instance}
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if out, end, err := w.tryCommand(small, "echo in"); out != "in\n" {
				t.Errorf("one of many printed %q and ended with %+v, %v", out, end, err)
			}
		})
	}
	all.Wait()
	w.command(large, "for i in $(seq 60); do ./testapp alloc 2 & done; sleep 2")
	for i, p := range []app.Process{small, large} {
		if now := w.running(p); now.Instance != before[i] {
			rs, err := runtime.NewExitLog(w.db, 0).Process(p.GUID)
			t.Errorf("the instance was replaced: %+v, %v", rs, err)
		}
	}
}

// A session gets an environment even if the process has overwritten its own, or is
// still sourcing its profile.
func TestSessionEnvironmentOtherwise(t *testing.T) {
	w := newWorld(t)
	w.boot()
	// The shell's environment is empty and the program's own is gone: the settings from
	// the start are used.
	p := w.put(testApp{name: "sesenv", memory: 64, command: "exec env -i /bin/sleep 1000"})
	w.running(p)
	if out, _ := w.command(p, "echo $CF_INSTANCE_INDEX; pwd"); out != "0\n/home/vcap/app\n" {
		t.Errorf("beside a program without environment: %q", out)
	}
	// The working directory of the process was removed.
	gone := w.put(testApp{name: "sesdir", memory: 64, command: "mkdir x; cd x; rmdir ../x; exec sleep 1000"})
	w.running(gone)
	w.eventually("the program runs", func() error { return w.isCommand(w.running(gone).Instance, "sleep") })
	if out, end := w.command(gone, "pwd"); out != "/home/vcap/app\n" || end.Code != 0 {
		t.Errorf("in a folder that is gone: %q, %+v", out, end)
	}
}

// A terminal has its size before the program reads it, and gets every new size.
func TestSessionTerminal(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "sestty", memory: 64, command: "exec ./testapp sleep"})
	w.running(p)
	ses := w.enter(p, runtime.ExecSpec{
		Kind: runtime.ExecCommand, Command: "stty size; stty -a | grep -o -e '-echo\\b'; read x; stty size; exit 5",
		TTY: &runtime.Terminal{Size: runtime.Size{Columns: 132, Rows: 50}, Modes: []runtime.TerminalMode{{Opcode: 53, Value: 0}}},
	})
	first := make([]byte, len("50 132\r\n-echo\r\n"))
	if _, err := io.ReadFull(ses.Streams().Out, first); err != nil || string(first) != "50 132\r\n-echo\r\n" {
		t.Fatalf("first printed %q, %v", first, err)
	}
	if err := ses.Resize(t.Context(), runtime.Size{Columns: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(ses.Streams().In, "\n"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(ses.Streams().Out)
	if end, werr := ses.Wait(t.Context()); err != nil || werr != nil || string(rest) != "24 80\r\n" || end.Code != 5 {
		t.Errorf("then printed %q, %v, and ended with %+v, %v", rest, err, end, werr)
	}
}

// An instance that is deleted while sessions are being opened ends all of them.
func TestSessionsAndDeletion(t *testing.T) {
	w := newWorld(t)
	w.boot()
	for range times(3, 50) {
		p := w.put(testApp{name: "sesdel", memory: 64, command: "exec ./testapp sleep"})
		st := w.running(p)
		var all sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					ses, err := w.sup.Exec(context.Background(), runtime.ExecTarget{Process: p.GUID}, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "sleep 1000"})
					if err != nil {
						return
					}
					defer ses.Close()
				}
			})
		}
		w.eventually("some sessions are open, some are being opened", func() error {
			leaves, err := w.engine.cg.Leaves(st.Instance)
			if err != nil {
				return err
			}
			open := 0
			for _, leaf := range leaves {
				if strings.HasPrefix(leaf, session.Prefix) {
					open++
				}
			}
			if open < 3 {
				return fmt.Errorf("%d sessions", open)
			}
			return nil
		})
		w.stop(p)
		close(stop)
		all.Wait()
		w.eventually("no cgroup is left", func() error {
			for _, id := range w.engine.cg.Instances() {
				if id == st.Instance {
					return errors.New("there is one")
				}
			}
			return nil
		})
	}
}
