package supervisor_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor"
)

// An app that is deleted while no daemon runs leaves nothing behind.
func TestDeletedWhileDaemonWasDown(t *testing.T) {
	t.Parallel()
	for _, crashes := range []int{0, 1} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000")
			w.daemon()
			for range crashes {
				w.fake.Last().End(main, 1)
				w.pass(time.Second)
			}
			w.stopDaemon()
			w.must(w.registry.DeleteApp(p))
			w.daemon()
			w.pass(time.Minute)
			w.wantNothing()
			if got := len(w.records(p)); got != 0 {
				t.Errorf("%d exit records are left, want none", got)
			}
		})
	}
}

// Instances keep running when the daemon exits, and the next daemon takes them over.
func TestAppsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		old := w.status(p)
		w.stopDaemon()
		if got := w.fake.Calls(); len(got) != 0 {
			t.Errorf("calls = %v, want none", got)
		}
		w.pass(time.Hour)
		w.daemon()
		st := w.wantState(p, runtime.Running)
		if st.Instance != old.Instance || st.Address != old.Address || st.Version != old.Version || !st.Ready {
			t.Errorf("status = %+v, want the same instance", st)
		}
		w.wantStarts(1)
		w.wantRecords(p, 0)
		w.wantLeases(1)
		w.fake.Last().End(sideA, 1)
		w.pass(time.Second)
		w.wantRecords(p, 1)
		w.wantStarts(2)
	})
}

// Clients are served when requests reach the adopted instances again. An instance that
// does not become healthy delays that by a second.
func TestReadyAfterAdoption(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		unreachable bool
		state       runtime.State
		after       time.Duration
	}{
		"healthy":   {false, runtime.Running, 0},
		"unhealthy": {true, runtime.Starting, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				p := w.push("sleep 1000")
				w.daemon()
				w.wantState(p, runtime.Running)
				w.stopDaemon()
				w.fake.Last().RefuseConnections(tt.unreachable)
				var calls []runtime.Status
				began := time.Now()
				w.onReady = func() {
					calls = append(calls, w.status(p))
					if late := time.Since(began); late < tt.after || late > tt.after+100*ms {
						t.Errorf("ready after %v, want %v", late, tt.after)
					}
				}
				w.daemon()
				w.pass(2 * time.Second)
				if len(calls) != 1 || calls[0].State != tt.state || calls[0].Ready == tt.unreachable {
					t.Errorf("status when ready was called: %+v, want %s once", calls, tt.state)
				}
			})
		})
	}
}

// Clients do not wait for an instance that is not wanted any more.
func TestReadyWithoutUnwantedInstances(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		w.stopDaemon()
		w.must(w.registry.DeleteApp(p))
		began, late := time.Now(), time.Duration(-1)
		w.onReady = func() { late = time.Since(began) }
		w.daemon()
		w.pass(2 * time.Second)
		if late < 0 || late > 100*ms {
			t.Errorf("ready after %v, want at most 100ms", late)
		}
	})
}

// A daemon that exits during a start leaves no record and sends no further signal.
func TestDaemonStopsDuringStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := w.fake.BlockStart()
		p := w.push("sleep 1000")
		w.daemon()
		w.stopDaemon()
		release()
		w.daemon()
		w.wantState(p, runtime.Running)
		w.wantStarts(1)
		w.wantRecords(p, 0)
		w.wantLeases(1)
	})
}

// Exits that happened while no daemon was running become records with their own times,
// in the order of the exits.
func TestMissedExitsBecomeRecords(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		w.stopDaemon()
		container := w.fake.Last()
		container.Print(sideA, "nobody saw it")
		died := time.Now()
		container.End(sideA, 137)
		w.pass(30 * ms)
		container.End(main, 1)
		w.pass(time.Hour)
		w.daemon()
		w.pass(time.Second)
		r := w.record(p)
		if !r.CrashedAt.Equal(died) || r.First.Exec != sideA || r.Phase != runtime.PhaseUnwatched ||
			len(r.Followers) != 1 || r.Followers[0].Cause != runtime.CausePeerExited {
			t.Errorf("record = %+v, want the sidecar at %v", r, died)
		}
		if batch := w.logs.batchOf("nobody saw it"); len(batch) != 2 {
			t.Errorf("batch = %v, want the last line with the record", batch)
		}
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
	})
}

// Simultaneous exits stay simultaneous even if a daemon reads them an hour later, one
// after the other.
func TestMissedExitsTogether(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.stopDaemon()
		container, died := w.fake.Last(), time.Now()
		container.End(main, 1)
		w.pass(time.Hour)
		w.daemon()
		time.Sleep(3 * ms)
		container.EndAt(sideA, 2, died)
		w.pass(time.Second)
		if r := w.record(p); r.First.Exec != sideA || r.Order != runtime.OrderTogether {
			t.Errorf("first %s, order %q, want the sidecar, together", r.First.Exec, r.Order)
		}
	})
}

// A daemon that is killed while it replaces an instance leaves no crash: the next one
// continues the replacement.
func TestInterruptedRestartIsNoCrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.stopDaemon()
		w.must(w.registry.Restart(p))
		w.fake.Last().End(main, 143)
		w.daemon()
		w.pass(time.Minute)
		w.wantRecords(p, 0)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
	})
}

// An instance that was being stopped is wanted again, with the same version. Its end is no
// crash, and whatever is left of it ends.
func TestInterruptedStopIsNoCrash(t *testing.T) {
	t.Parallel()
	for _, exited := range []bool{true, false} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000")
			scale := func(n int) { w.change(p, func(p *app.Process) { p.Instances = n }) }
			scale(2)
			w.daemon()
			old := w.sup.Instances(p)[1].Instance
			for _, c := range w.fake.Containers() {
				if c.Spec().Instance == old && !exited {
					c.IgnoreSignals(main, syscall.SIGTERM)
				}
			}
			scale(1)
			w.stopDaemon()
			scale(2)
			w.daemon()
			w.pass(time.Minute)
			if all := w.sup.Instances(p); len(all) != 2 || all[1].State != runtime.Running || all[1].Instance == old {
				t.Errorf("instances = %+v, want two that run, and not %s", all, old)
			}
			w.wantRecords(p, 0)
			w.wantStarts(3)
			w.wantLeases(2)
		})
	}
}

// If a daemon is killed after it wrote the line of a crash and before the record, the
// next one stores the record. It does not print the line again.
func TestLineOfACrashIsNotPrintedTwice(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.stopDaemon()
		container := w.fake.Last()
		container.Print(sideA, "last words")
		container.End(sideA, 1)
		line := `App instance exited with guid x payload: {"instance":"` + string(container.Spec().Instance) + `","index":0}`
		w.must(w.logs.Append(p, logstream.Envelope{Source: logstream.Source{Type: "API"}, Text: []byte(line)}))
		// The other process keeps printing until it is stopped.
		w.must(w.logs.Append(p, slices.Repeat([]logstream.Envelope{{Source: logstream.Source{Type: "APP/PROC/WEB"}, Text: []byte("tick")}}, 30_000)...))
		w.daemon()
		w.pass(time.Minute)
		w.wantRecords(p, 1)
		if got := strings.Count(strings.Join(w.logs.lines(), "\n"), "App instance exited"); got != 1 {
			t.Errorf("lines of the crash = %d, want 1", got)
		}
		if batch := w.logs.batchOf("last words"); len(batch) != 1 {
			t.Errorf("batch = %v, want the last line alone", batch)
		}
	})
}

// A crash that was recorded before the daemon exited is not reported twice. The next
// daemon does the remaining steps.
func TestCrashIsReportedOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000", "sleep 1000")
		w.daemon()
		old := w.status(p).Instance
		w.fake.Last().End(sideA, 1)
		w.pass(time.Second)
		w.wantRecords(p, 1)
		w.stopDaemon()
		w.pass(time.Hour)
		w.daemon()
		st := w.wantState(p, runtime.Crashed)
		if st.Instance != old || !strings.Contains(st.Details, "Exited with status 1") {
			t.Errorf("status = %+v, want the crash of before", st)
		}
		w.pass(time.Minute)
		w.wantRecords(p, 1)
		if r := w.record(p); !r.Complete || len(r.Followers) != 1 || r.Followers[0].Exec != main {
			t.Errorf("record = %+v, want it completed", r)
		}
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
	})
}

// Crash count, next start and giving up survive a restart of the daemon.
func TestBackoffSurvivesTheDaemon(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("exit 1")
		w.daemon()
		w.pass(10 * time.Second) // during the first delay of 30 s
		w.wantStarts(4)
		due := w.status(p).NextStart
		w.stopDaemon()
		w.pass(5 * time.Second)
		w.daemon()
		st := w.wantState(p, runtime.Crashed)
		if st.CrashCount != 4 || !st.NextStart.Equal(due) {
			t.Errorf("status = %+v, want count 4 and next start %v", st, due)
		}
		w.pass(time.Until(due) - ms)
		w.wantStarts(4)
		w.pass(ms)
		w.wantStarts(5)
		w.pass(time.Second)
		if st := w.status(p); st.CrashCount != 5 || st.NextStart.Sub(due) < time.Minute {
			t.Errorf("status = %+v, want count 5 and a wait of a minute", st)
		}
	})
}

// A restart that is requested while no daemon runs happens when the next one starts.
func TestRestartRequestedWhileDaemonWasDown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		old := w.status(p).Instance
		w.stopDaemon()
		w.must(w.registry.Restart(p))
		w.daemon()
		w.pass(time.Second)
		if st := w.wantState(p, runtime.Running); st.Instance == old {
			t.Error("the old instance still runs")
		}
		w.wantRecords(p, 0)
		w.wantStarts(2)
	})
}

// A found instance that is not desired is stopped like any other, and deleted.
func TestUndesiredIsStopped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000")
		w.change(p, func(p *app.Process) { p.Instances = 2 })
		w.daemon()
		w.stopDaemon()
		w.change(p, func(p *app.Process) { p.Instances = 1 })
		w.daemon()
		if got := len(w.fake.Present()); got != 2 {
			t.Errorf("%d instances are there, want 2: the stop takes its time", got)
		}
		w.pass(10 * time.Second)
		w.wantState(p, runtime.Running)
		if got := len(w.fake.Present()); got != 1 {
			t.Errorf("%d instances are there, want 1", got)
		}
		w.wantLeases(1)
		w.wantRecords(p, 0)
		w.wantStarts(2)
	})
}

// If a slot has two instances, the older one is stopped.
func TestTwoInstancesOfOneSlot(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		first := w.fake.Last().Spec()
		w.stopDaemon()
		w.pass(time.Minute)
		second := first
		second.Instance, second.Address = runtime.NewInstanceID(), netip.MustParsePrefix("10.201.0.9/20")
		_, err := w.fake.Start(t.Context(), second)
		w.must(err)
		w.onChange = func(st runtime.Status) {
			if st.Instance != second.Instance || st.State == runtime.Stopping {
				t.Errorf("the listener heard of %s %s, want the newer one only", st.State, st.Instance)
			}
		}
		w.daemon()
		w.pass(time.Second)
		if st := w.wantState(p, runtime.Running); st.Instance != second.Instance {
			t.Errorf("instance = %s, want the newer one", st.Instance)
		}
		if present := w.fake.Present(); len(present) != 1 || present[0].Spec().Instance != second.Instance {
			t.Errorf("%d instances are there, want the newer one only", len(present))
		}
		w.wantRecords(p, 0)
		w.wantLeases(1)
		w.wantStarts(2)
	})
}

// The addresses of instances that disappeared are released.
func TestVanishedInstanceIsStartedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		w.stopDaemon()
		w.must(w.fake.Sweep(t.Context(), nil)) // a reboot: no container is left
		w.daemon()
		w.wantState(p, runtime.Running)
		w.wantRecords(p, 0)
		w.wantStarts(2)
		w.wantLeases(1)
	})
}

// The daemon waits for a container service that is down when the daemon starts.
func TestAdoptWaitsForTheService(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.FailAdopt(fmt.Errorf("cannot list: %w", runtime.ErrUnavailable))
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		if got := len(w.sup.Instances(p)); got != 0 {
			t.Errorf("%d slots before adoption, want none", got)
		}
		w.fake.FailAdopt(nil)
		w.pass(30 * time.Second)
		w.wantState(p, runtime.Running)
	})
}

// If an adoption fails permanently, Run returns the reason.
func TestAdoptFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.FailAdopt(errBoom)
		sup, err := supervisor.New(w.config())
		w.must(err)
		if err := sup.Run(t.Context()); err == nil || err.Error() != "cannot adopt instances: boom" {
			t.Errorf("Run = %v", err)
		}
	})
}

// An instance that cannot be taken over does not prevent other starts. It keeps
// running, its slot stays in use, and an error names it. It is taken over as soon as
// that works.
func TestUnadoptedInstanceIsLeftAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) { p.Instances = 2 })
		w.daemon()
		old := w.sup.Instances(p)
		w.stopDaemon()
		var well atomic.Bool
		w.fake.FailAdoptionOf(old[0].Instance, func() error {
			if well.Load() {
				return nil
			}
			return errBoom
		})
		w.daemon()
		w.pass(10 * time.Minute)
		if now := w.sup.Instances(p); len(now) != 1 || now[0].Instance != old[1].Instance {
			t.Errorf("instances = %+v, want the one that could be taken over", now)
		}
		w.wantStarts(2)
		if err := w.sup.Unadopted(); err == nil || !strings.Contains(err.Error(), string(old[0].Instance)) {
			t.Errorf("Unadopted = %v, want it to name %s", err, old[0].Instance)
		}
		well.Store(true)
		w.pass(10 * time.Minute)
		if now := w.sup.Instances(p); len(now) != 2 || now[0].Instance != old[0].Instance || now[0].State != runtime.Running {
			t.Errorf("instances = %+v, want those of before", now)
		}
		w.wantStarts(2)
		w.wantRecords(p, 0)
		w.wantLeases(2)
		if err := w.sup.Unadopted(); err != nil {
			t.Errorf("Unadopted = %v, want nothing", err)
		}
	})
}

// An instance that cannot be taken over is removed once its app is deleted.
func TestUnadoptedInstanceOfADeletedAppIsRemoved(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		id := w.status(p).Instance
		w.stopDaemon()
		w.fake.FailAdoptionOf(id, func() error { return errBoom })
		w.daemon()
		w.must(w.registry.DeleteApp(p))
		w.pass(10 * time.Minute)
		if err := w.sup.Unadopted(); err != nil {
			t.Errorf("Unadopted = %v, want nothing", err)
		}
		w.wantNothing()
	})
}
