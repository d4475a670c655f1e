//go:build integration

package containerd

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

// The exit of a main process is known with its status, whoever started the process, and
// whether a daemon ran at that moment. No line is lost. Earlier versions of dewd started it
// as an exec of containerd, and it runs on during an upgrade.
func TestExitOfMainAcrossDaemons(t *testing.T) {
	for _, byExec := range []bool{false, true} {
		for _, end := range []struct {
			name   string
			away   bool // the daemon
			status int
			cause  runtime.Cause
			kill   func(w *world, id runtime.InstanceID) int // returns the process
		}{
			{"killed", false, 137, runtime.CauseExited, func(w *world, id runtime.InstanceID) int { return w.mainPID(id, runtime.MainExec) }},
			{"killed without a daemon", true, 137, runtime.CauseExited, func(w *world, id runtime.InstanceID) int { return w.mainPID(id, runtime.MainExec) }},
			{"exits without a daemon", true, 3, runtime.CauseExited, nil},
			{"PID 1 killed without a daemon", true, 0, runtime.CauseInitExited, (*world).initPIDOf},
		} {
			t.Run(fmt.Sprintf("%s, exec %v", end.name, byExec), func(t *testing.T) {
				w := newWorld(t)
				w.policy = crashLoop
				w.engine.execMain = byExec
				w.boot()
				command := "trap 'seq 20000; echo last; exit 3' USR1; echo ready; while :; do sleep 0.01; done"
				p := w.put(testApp{
					name: "main", memory: 64, command: command,
					sidecars: []app.Sidecar{sidecar("s", "exec sleep 1000", 16)},
				})
				st := w.running(p)
				if got := len(w.execs(st.Instance)); (got == 2) != byExec {
					t.Fatalf("%d execs, started by an exec: %v", got, byExec)
				}
				w.line(p.App, "PROC/WEB", "ready")
				pid, sig := w.mainPID(st.Instance, "main"), syscall.SIGUSR1
				if end.kill != nil {
					pid, sig = end.kill(w, st.Instance), syscall.SIGKILL
				}
				w.leave()
				if !end.away {
					w.boot()
					if now := w.running(p); now.Instance != st.Instance {
						t.Fatalf("instance %s runs, want %s as before", now.Instance, st.Instance)
					}
				}
				born := process.BornAt(pid)
				signalTo(t, pid, sig)
				if end.away {
					testkit.EventuallyTrue(t, "the process to end", func() bool { return process.Ended(pid, born) })
					w.boot()
				}
				r := w.recordOf(p, st.Instance)
				if r.First.Cause != end.cause || end.status != 0 && (r.First.Exec != runtime.MainExec || r.First.Code != end.status) {
					t.Errorf("record = %s (%s, %s), want %s with status %d", r.Description, r.First.Exec, r.First.Cause, end.cause, end.status)
				}
				if end.status == 3 {
					w.line(p.App, "PROC/WEB", "20000")
					w.line(p.App, "PROC/WEB", "last")
				}
			})
		}
	}
}
