//go:build integration

package containerd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

// times returns the number of repetitions of a randomized test: more in the long proof.
func times(short, proof int) int {
	if os.Getenv("DEW_PROOF") != "" {
		return proof
	}
	return short
}

// stubborn keeps running after its peers have exited, until it is killed.
const stubborn = "trap '' TERM; echo up; while :; do sleep 1000; done"

var crashLoop = policy.Policy{KillDelay: 200 * time.Millisecond, ImmediateRestarts: 1 << 20, MaxCrashes: 1 << 20}

// If two processes exit 20 ms apart, the record always names the earlier one.
func TestEarlierDeathIsNamed(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	p := w.put(testApp{name: "order", memory: 128, command: stubborn, sidecars: []app.Sidecar{sidecar("s", stubborn, 32)}})
	var before runtime.InstanceID
	for i := range times(20, 1000) {
		st := w.running(p, before)
		before = st.Instance
		order := []string{"main", "sidecar-0"}
		if rand.IntN(2) == 0 {
			order = []string{"sidecar-0", "main"}
		}
		first, second := w.commandPID(st.Instance, order[0]), w.commandPID(st.Instance, order[1])
		kill(t, first)
		// A killed process exits when it gets a processor: the time counts from there.
		w.eventually("the first is dead", func() error {
			if process.Alive(first) {
				return fmt.Errorf("%d lives", first)
			}
			return nil
		})
		passed(t, 20*time.Millisecond)
		killLate(t, second)
		r := w.recordOf(p, st.Instance)
		if r.First.Exec != order[0] || r.Order == runtime.OrderTogether {
			t.Fatalf("round %d: killed %s first, the record names %s (order %q, %+v)", i, order[0], r.First.Exec, r.Order, r.Followers)
		}
	}
}

// Simultaneous exits give one record that has both, and says so.
func TestDeathsTogetherAreOneRecord(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.policy.Together, w.policy.KillDelay = testkit.Patience, testkit.Patience // on a busy machine they exit one after the other
	w.boot()
	p := w.put(testApp{name: "both", memory: 128, command: stubborn, sidecars: []app.Sidecar{sidecar("s", stubborn, 32)}})
	st := w.running(p)
	main, side := w.commandPID(st.Instance, "main"), w.commandPID(st.Instance, "sidecar-0")
	kill(t, main)
	kill(t, side)
	r := w.recordOf(p, st.Instance)
	if r.Order != runtime.OrderTogether || len(r.Followers) != 1 || r.Followers[0].At.Before(r.First.At) {
		t.Errorf("record = first %s at %v, order %q, followers %+v; want together, one that is not earlier", r.First.Exec, r.First.At, r.Order, r.Followers)
	}
	n := 0
	for _, x := range w.records(p, 1) {
		if x.Instance == st.Instance {
			n++
		}
	}
	if n != 1 {
		t.Errorf("records of the instance = %d, want 1", n)
	}
}

// For every order in which three processes exit, the instance ends in the same way and
// the next one runs.
func TestEveryOrderEndsTheSame(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	p := w.put(testApp{
		name: "orders", memory: 128, command: stubborn,
		sidecars: []app.Sidecar{sidecar("a", stubborn, 32), sidecar("b", stubborn, 32)},
	})
	var before runtime.InstanceID
	for _, order := range []string{"main sidecar-0 sidecar-1", "main sidecar-1 sidecar-0", "sidecar-0 main sidecar-1", "sidecar-0 sidecar-1 main", "sidecar-1 main sidecar-0", "sidecar-1 sidecar-0 main"} {
		st := w.running(p, before)
		before = st.Instance
		var pids []int
		for exec := range strings.FieldsSeq(order) {
			pids = append(pids, w.commandPID(st.Instance, exec))
		}
		for _, pid := range pids {
			killLate(t, pid)
			w.eventually("it is dead", func() error {
				if process.Alive(pid) {
					return fmt.Errorf("%d lives", pid)
				}
				return nil
			})
			passed(t, 15*time.Millisecond)
		}
		r := w.recordOf(p, st.Instance)
		if want := strings.Fields(order)[0]; r.First.Exec != want || len(r.Followers) != 2 {
			t.Errorf("order %s: record = first %s, %d followers; want %s and 2", order, r.First.Exec, len(r.Followers), want)
		}
	}
	w.running(p, before)
	w.stop(p)
	if got := w.containers(); len(got) != 0 {
		t.Errorf("containers = %v, want none", got)
	}
}

// commandPID waits until the command of a process runs: its shell has started sleep.
func (w *world) commandPID(id runtime.InstanceID, exec string) int {
	w.t.Helper()
	var pid int
	w.eventually("the command runs in "+exec, func() error {
		pids, err := w.engine.cg.Procs(id, exec)
		if err == nil && len(pids) < 2 {
			err = fmt.Errorf("processes %v", pids)
		}
		if err == nil {
			pid = leader(pids)
		}
		return err
	})
	return pid
}

// recordOf waits for the complete record of one instance.
func (w *world) recordOf(p app.Process, id runtime.InstanceID) runtime.ExitRecord {
	w.t.Helper()
	var found runtime.ExitRecord
	w.eventually("the record of "+string(id), func() error {
		for _, r := range w.records(p, 1) {
			if r.Instance == id && r.Complete {
				found = r
				return nil
			}
		}
		return fmt.Errorf("none")
	})
	return found
}

// passed returns when d has passed since the exit of a process: the time between two
// exits is the subject of these tests.
func passed(t *testing.T, d time.Duration) {
	t.Helper()
	dead := time.Now()
	testkit.EventuallyTrue(t, "the time between two exits has passed", func() bool { return time.Since(dead) >= d })
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// killLate kills a process that the daemon has possibly killed already, because another
// process of the instance exited earlier.
func killLate(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
}
