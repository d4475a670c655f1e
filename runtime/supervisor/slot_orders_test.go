package supervisor_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// Three processes that crash in any order give the same result: a record that names the
// first and contains all, and a new instance.
func TestEveryOrderOfExits(t *testing.T) {
	t.Parallel()
	for _, order := range permutations(main, sideA, sideB) {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
			w.daemon()
			container := w.fake.Last()
			for _, exec := range order {
				container.IgnoreSignals(exec, syscall.SIGTERM, syscall.SIGKILL)
			}
			for i, exec := range order {
				container.End(exec, i)
				time.Sleep(20 * ms)
			}
			w.pass(time.Minute)
			r := w.record(p)
			known := []string{r.First.Exec}
			for _, f := range r.Followers {
				known = append(known, f.Exec)
			}
			if diff := cmp.Diff(known, order); diff != "" || !r.Complete {
				t.Errorf("complete %v, order of the record (-got +want):\n%s", r.Complete, diff)
			}
			w.wantState(p, runtime.Running)
			w.wantStarts(2)
			w.wantLeases(1)
		})
	}
}

// Three processes that exit in any order during a stop give the same result.
func TestEveryOrderOfStopping(t *testing.T) {
	t.Parallel()
	for _, order := range permutations(main, sideA, sideB) {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
			w.daemon()
			container := w.fake.Last()
			for _, exec := range order {
				container.IgnoreSignals(exec, syscall.SIGTERM)
			}
			w.state(p, app.Stopped)
			w.wantState(p, runtime.Stopping)
			for i, exec := range order {
				w.pass(time.Second)
				container.End(exec, i)
			}
			w.pass(time.Second)
			if got := w.sup.Instances(p); len(got) != 0 {
				t.Errorf("order %v: slots %+v, want none", order, got)
			}
			w.wantRecords(p, 0)
			w.wantNothing()
		})
	}
}

// Three processes that exit in any order during the start give the same result.
func TestEveryOrderOfStarting(t *testing.T) {
	t.Parallel()
	for _, commands := range permutations("exit 1", "sleep 1000", "echo hello; sleep 1000") {
		inWorld(t, func(w *world) {
			w.policy.MaxCrashes = 1
			p := w.push(commands[0], commands[1], commands[2])
			w.daemon()
			w.pass(time.Minute)
			dead := []string{main, sideA, sideB}[slices.Index(commands, "exit 1")]
			r := w.record(p)
			if r.First.Exec != dead || len(r.Followers) != 2 || !r.Complete {
				t.Errorf("commands %v: first %s, %d followers, want %s and 2", commands, r.First.Exec, len(r.Followers), dead)
			}
			w.wantState(p, runtime.Crashed)
			w.wantNothing()
		})
	}
}

func permutations(of ...string) [][]string {
	if len(of) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i := range of {
		rest := slices.Delete(slices.Clone(of), i, i+1)
		for _, p := range permutations(rest...) {
			out = append(out, append([]string{of[i]}, p...))
		}
	}
	return out
}
