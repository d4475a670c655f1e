//go:build integration

package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

// watched returns an app whose main process and sidecar serve, with frequent health
// checks.
func (w *world) watched(name string) app.Process {
	return w.put(testApp{
		name: name, memory: 128, command: "exec ./testapp serve 0.0.0.0:8080",
		sidecars: []app.Sidecar{sidecar("s", stubborn, 32)},
		check:    app.HealthCheck{Type: "port", Timeout: testkit.Patience, Interval: 2 * time.Millisecond, InvocationTimeout: testkit.Patience},
	})
}

// burn keeps every processor busy until the test ends.
func burn(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	for range goruntime.NumCPU() {
		cmd := testkit.Sleeper(t, "sh", "-c", "while :; do :; done")
		go func() {
			<-done
			_ = cmd.Process.Kill() // it can have exited with the test
		}()
	}
}

// wantFirst checks that the record of an instance names the killed process, and that no
// exit in it is earlier.
func (w *world) wantFirst(p app.Process, id runtime.InstanceID, exec string) {
	w.t.Helper()
	r := w.recordOf(p, id)
	if r.First.Exec != exec || r.First.Code != 137 || r.First.Cause == runtime.CauseUnhealthy {
		w.t.Errorf("killed %s, the record names %s: %s", exec, r.First.Exec, r.Description)
	}
	for _, f := range r.Followers {
		if f.At.Before(r.First.At) {
			w.t.Errorf("killed %s: follower %s ended %v before the first", exec, f.Exec, r.First.At.Sub(f.At))
		}
	}
}

// If a health check fails because a process exited, the record names the process. This
// holds even if containerd hangs at that moment, or is killed and started again.
func TestDeathDuringOutage(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	if os.Getenv("DEW_PROOF") != "" {
		burn(t)
	}
	p := w.watched("outage")
	t.Cleanup(func() { _ = syscall.Kill(shared.daemon.StoredPID(), syscall.SIGCONT) }) // in case a check failed in between
	var before runtime.InstanceID
	for i := range times(2, 20) {
		for _, exec := range []string{"main", "sidecar-0"} {
			for _, outage := range []string{"hung", "killed", "none"} {
				st := w.running(p, before)
				before = st.Instance
				pid := w.mainPID(st.Instance, exec)
				switch outage {
				case "hung":
					freeze(t, shared.daemon.StoredPID())
				case "killed":
					signalTo(t, shared.daemon.StoredPID(), syscall.SIGKILL)
				}
				kill(t, pid)
				if outage == "hung" {
					if exec == runtime.MainExec { // PID 1 reports its exit, without containerd
						w.wantCrashed(p)
					} else if i == 0 {
						w.wantUnknown(p)
					}
					signalTo(t, shared.daemon.StoredPID(), syscall.SIGCONT)
				}
				w.wantFirst(p, st.Instance, exec)
			}
		}
	}
	w.running(p, before)
	w.stop(p)
}

// freeze stops a process. It returns when all its threads have stopped: until then
// containerd could still report an exit.
func freeze(t *testing.T, pid int) {
	t.Helper()
	signalTo(t, pid, syscall.SIGSTOP)
	testkit.Eventually(t, "all threads have stopped", func() error {
		threads, err := filepath.Glob(process.File(pid, "task/*/stat"))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads of %d: %w", pid, err)
		}
		for _, thread := range threads {
			b, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			if _, state, ok := strings.Cut(string(b), ") "); !ok || state[0] != 'T' {
				return fmt.Errorf("thread %s", b)
			}
		}
		return nil
	})
}

func signalTo(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// wantCrashed waits until the crash of an instance is known. Its record is complete only when
// containerd has reported the other processes.
func (w *world) wantCrashed(p app.Process) {
	w.t.Helper()
	w.eventually("the crash is known", func() error {
		st := w.sup.Instances(p.GUID)[0]
		if st.State != runtime.Crashed || st.Details != "APP/PROC/WEB: Exited with status 137" {
			return fmt.Errorf("status %+v, want the crash of the main process", st)
		}
		return nil
	})
}

// wantUnknown waits until the status of an instance is unknown. It stays in its routes, and
// has no record.
func (w *world) wantUnknown(p app.Process) {
	w.t.Helper()
	w.eventually("the instance is unknown", func() error {
		st := w.sup.Instances(p.GUID)[0]
		if st.State != runtime.Running || !strings.HasSuffix(st.Details, "containerd does not answer") || !st.Ready {
			return fmt.Errorf("status %+v, want unknown and ready", st)
		}
		for _, r := range w.records(p, 0) {
			if r.Instance == st.Instance {
				w.t.Fatalf("record %q while containerd does not answer", r.Description)
			}
		}
		return nil
	})
}

// The exit of PID 1 is reported as such, not as that of a process that it terminated.
func TestDeathOfInitIsNamed(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	if os.Getenv("DEW_PROOF") != "" {
		burn(t)
	}
	p := w.put(testApp{name: "init", memory: 128, command: stubborn, sidecars: []app.Sidecar{sidecar("a", stubborn, 32), sidecar("b", stubborn, 32)}})
	var before runtime.InstanceID
	for i := range times(5, 100) {
		st := w.running(p, before)
		before = st.Instance
		kill(t, w.initPIDOf(st.Instance))
		r := w.recordOf(p, st.Instance)
		if r.First.Cause != runtime.CauseInitExited || r.Order != "" {
			t.Errorf("round %d: killed PID 1, the record says %q, cause %s, order %q", i, r.Description, r.First.Cause, r.Order)
		}
		for _, f := range r.Followers {
			if f.At.Before(r.First.At) {
				t.Errorf("round %d: follower %s is earlier than the first", i, f.Exec)
			}
		}
	}
	w.running(p, before)
	w.stop(p)
}

// initPIDOf returns PID 1 of a running instance.
func (w *world) initPIDOf(id runtime.InstanceID) int {
	w.t.Helper()
	for _, c := range w.engine.known.all() {
		if c.spec.Instance == id {
			return c.init.pid
		}
	}
	w.t.Fatalf("no instance %s", id)
	return 0
}
