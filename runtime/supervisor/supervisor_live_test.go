package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/verdict"
)

// A signal reaches only the named process in the named instance.
func TestSignalReachesTheNamed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		if err := w.sup.Signal(t.Context(), p, 0, "nobody", runtime.SentSignal{Number: int(syscall.SIGKILL), User: "admin"}); !errors.Is(err, runtime.ErrNoInstance) {
			t.Errorf("signal to an unknown sidecar: %v, want ErrNoInstance", err)
		}
		if err := w.sup.Signal(t.Context(), p, 7, "", runtime.SentSignal{Number: int(syscall.SIGKILL), User: "admin"}); !errors.Is(err, runtime.ErrNoInstance) {
			t.Errorf("signal to an unknown instance: %v, want ErrNoInstance", err)
		}
		w.wantRecords(p, 0)
		w.must(w.sup.Signal(t.Context(), p, 0, "config server a", runtime.SentSignal{Number: int(syscall.SIGKILL), User: "admin"}))
		w.pass(time.Second)
		if r := w.record(p); r.First.Exec != sideA || r.First.Code != 137 {
			t.Errorf("first = %+v, want the sidecar with 137", r.First)
		} else if v := r.Verdict("shop"); v.Class != verdict.KilledByUser || !strings.Contains(v.Sentence, "admin sent it SIGKILL") {
			t.Errorf("verdict = %+v, want that admin killed it", v)
		}
	})
}

// RestartInstance replaces one instance and leaves the other unchanged.
func TestRestartInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		before := w.status(p).Instance
		w.must(w.sup.RestartInstance(p, 0))
		w.pass(time.Minute)
		if after := w.wantState(p, runtime.Running).Instance; after == before {
			t.Error("the instance is the same")
		}
		w.wantRecords(p, 0)
		if err := w.sup.RestartInstance(p, 3); !errors.Is(err, runtime.ErrNoInstance) {
			t.Errorf("restart of an unknown instance: %v, want ErrNoInstance", err)
		}
	})
}

// A shutdown stops all instances and does not change the desired state.
func TestShutdown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.must(w.sup.Shutdown(context.Background()))
		w.wantNothing()
		w.sup.Sync(p)
		w.pass(time.Minute)
		w.wantStarts(1)
		w.wantRecords(p, 0)
		w.stopDaemon()
		w.daemon()
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
	})
}

// CPU is the rate since the previous request. A stopped instance has no usage.
func TestUsage(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(10 * time.Second)
		w.fake.Last().SetConsumption(runtime.Consumption{CPU: 5 * time.Second, Memory: 7, Disk: 9, Parts: []runtime.PartUsage{{Memory: 3}, {Sidecar: "agent", Memory: 4}}})
		u, ok := w.sup.Usage(t.Context(), p, 0)
		if !ok || u.CPU < 0.4 || u.CPU > 0.5 || u.Memory != 7 || u.Disk != 9 || len(u.Parts) != 2 || u.Parts[1].Sidecar != "agent" {
			t.Errorf("usage = %+v, %v, want half a core", u, ok)
		}
		w.pass(10 * time.Second)
		w.fake.Last().SetConsumption(runtime.Consumption{CPU: 15 * time.Second})
		if u, _ := w.sup.Usage(t.Context(), p, 0); u.CPU != 1 {
			t.Errorf("usage = %+v, want one core", u)
		}
		w.fake.Last().End(main, 1)
		if _, ok := w.sup.Usage(t.Context(), p, 1); ok {
			t.Error("an instance that is not there takes something")
		}
	})
}
