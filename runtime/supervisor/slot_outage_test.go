package supervisor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime"
)

// wantUnknown checks that the status of an instance is unknown, and that it has no
// routes if its check fails.
func (w *world) wantUnknown(process string, ready bool) {
	w.t.Helper()
	st := w.wantState(process, runtime.Running)
	if !strings.HasPrefix(st.Details, "unknown: ") || st.Ready != ready {
		w.t.Errorf("details %q, ready %v, want unknown, ready %v", st.Details, st.Ready, ready)
	}
}

// If the exit of a process is reported late, the record names the process. It does not
// name the health check that failed because of it.
func TestLateExitBeatsFailedCheck(t *testing.T) {
	t.Parallel()
	for _, exec := range []string{main, sideA} {
		for _, silence := range []time.Duration{2500 * ms, 10 * time.Minute} {
			inWorld(t, func(w *world) {
				p := w.push("sleep 1000", "sleep 1000")
				w.daemon()
				w.pass(45 * time.Second)
				container := w.fake.Last()
				answer := w.fake.HangService()
				container.End(exec, 137)
				container.RefuseConnections(true)
				if silence > time.Minute {
					w.pass(time.Minute)
					w.wantUnknown(p, false)
				}
				w.pass(silence)
				w.wantRecords(p, 0)
				answer()
				w.pass(15 * time.Second)
				r := w.record(p)
				if r.First.Exec != exec || r.First.Code != 137 || r.First.Cause != runtime.CauseExited {
					t.Errorf("after %s of silence the record names %s, %s, %d, want %s, exited, 137", silence, r.First.Exec, r.First.Cause, r.First.Code, exec)
				}
				for _, f := range r.Followers {
					if f.At.Before(r.First.At) {
						t.Errorf("follower %s is earlier than the first", f.Exec)
					}
				}
			})
		}
	}
}

// While the container service does not answer, no instance is stopped and nothing is
// recorded. Afterwards a healthy instance keeps running, and an unhealthy one is
// stopped.
func TestUnhealthyDuringOutage(t *testing.T) {
	t.Parallel()
	for _, recovers := range []bool{true, false} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000")
			w.daemon()
			w.pass(45 * time.Second)
			container := w.fake.Last()
			answer := w.fake.HangService()
			w.wantUnknown(p, true)
			container.RefuseConnections(true)
			w.pass(time.Hour)
			w.wantUnknown(p, false)
			w.wantRecords(p, 0)
			if got := w.fake.Calls(); len(got) != 0 {
				t.Errorf("calls = %v, want none", got)
			}
			container.RefuseConnections(!recovers)
			answer()
			w.pass(time.Minute)
			if !recovers {
				if r := w.record(p); r.First.Cause != runtime.CauseUnhealthy {
					t.Errorf("cause = %s, want unhealthy", r.First.Cause)
				}
				return
			}
			if st := w.wantState(p, runtime.Running); !st.Ready || st.Details != "" {
				t.Errorf("status = %+v, want it back on its routes", st)
			}
			w.wantRecords(p, 0)
			w.wantStarts(1)
			container.RefuseConnections(true)
			w.pass(time.Minute)
			w.wantRecords(p, 1)
		})
	}
}

// A user can stop and restart an instance whose state is unknown.
func TestStopAndRestartDuringOutage(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{true, false} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000")
			w.daemon()
			w.pass(45 * time.Second)
			answer := w.fake.HangService()
			w.fake.Last().RefuseConnections(true)
			w.pass(time.Minute)
			w.wantUnknown(p, false)
			if stop {
				w.state(p, "STOPPED")
			} else {
				w.must(w.sup.RestartInstance(p, 0))
			}
			w.pass(time.Minute)
			if got := w.fake.Containers()[0].Alive(); len(got) != 0 {
				t.Errorf("%v live, want none", got)
			}
			answer()
			w.pass(time.Minute)
			w.wantRecords(p, 0)
			if stop {
				w.wantNothing()
				return
			}
			w.wantState(p, runtime.Running)
			w.wantStarts(2)
		})
	}
}
