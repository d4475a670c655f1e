package supervisor_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// shopOf starts the world's app with that many instances, and its daemon. It returns
// the guid of the process.
func (w *world) shopOf(instances int) string {
	w.t.Helper()
	w.must(w.registry.Restart(w.push("sleep 1000")))
	p := w.only()
	w.change(p, func(p *app.Process) { p.Instances = instances })
	w.daemon()
	w.pass(time.Second)
	return p
}

// only returns the guid of the only app.
func (w *world) only() string {
	w.t.Helper()
	apps, err := w.registry.Apps()
	w.must(err)
	return apps[0].GUID
}

// deploy starts a deployment that changes the command.
func (w *world) deploy(guid, command string, n app.NewDeployment) app.Deployment {
	w.t.Helper()
	w.change(guid, func(p *app.Process) { p.Command = command })
	n.App = guid
	if n.Strategy == "" {
		n.Strategy = app.Rolling
	}
	n.Options.MaxInFlight = max(n.Options.MaxInFlight, 1)
	d, err := w.registry.Deploy(n)
	w.must(err)
	synctest.Wait()
	return d
}

func (w *world) deployment(guid string) app.Deployment {
	w.t.Helper()
	d, err := w.registry.Deployment(guid)
	w.must(err)
	return d
}

func (w *world) wantStatus(guid, want string) {
	w.t.Helper()
	value, reason := w.deployment(guid).Status()
	if got := value + " " + reason; got != want {
		w.t.Errorf("status = %s, want %s", got, want)
	}
}

// ready returns the number of ready instances by their command.
func (w *world) ready(process string) map[string]int {
	w.t.Helper()
	commands := map[runtime.InstanceID]string{}
	for _, c := range w.fake.Containers() {
		commands[c.Spec().Instance] = c.Spec().Processes[0].Command
	}
	out := map[string]int{}
	for _, st := range w.sup.Instances(process) {
		if st.State == runtime.Running && st.Ready {
			out[commands[st.Instance]]++
		}
	}
	return out
}

func (w *world) wantReady(process string, want map[string]int) {
	w.t.Helper()
	if diff := cmp.Diff(w.ready(process), want); diff != "" {
		w.t.Errorf("instances that serve (-got +want):\n%s", diff)
	}
}

// cancel cancels a deployment with the current number of ready instances, as the API
// does.
func (w *world) cancel(guid string) {
	w.t.Helper()
	_, err := w.registry.CancelDeployment(guid, func(d app.Deployment, generation int) int {
		n := 0
		for _, st := range w.sup.Instances(app.GenerationGUID(d.App, generation)) {
			if st.Ready {
				n++
			}
		}
		return n
	})
	w.must(err)
	synctest.Wait()
}

const (
	oldCommand = "sleep 1000"
	newCommand = "sleep 2000"
)

// A rolling deployment replaces every instance by a new one, within MaxInFlight, and
// never has fewer ready instances than before.
func TestRolling(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int{1, 2, 3, 10} {
		inWorld(t, func(w *world) {
			p := w.push(oldCommand)
			w.change(p, func(p *app.Process) { p.Instances = 3 })
			news := make(chan runtime.Status, 1000)
			w.onChange = func(st runtime.Status) { news <- st }
			var most atomic.Int64
			w.registry.Listen(func(process string) {
				wanted, _ := w.registry.Wanted(process)
				sum := int64(0)
				for _, n := range wanted.Counts {
					sum += int64(n)
				}
				most.Store(max(most.Load(), sum))
			})
			w.daemon()
			w.pass(time.Second)
			d := w.deploy(p, newCommand, app.NewDeployment{Options: app.DeploymentOptions{MaxInFlight: inFlight}})
			w.pass(time.Minute)
			if got := fewest(news, 3); got != 3 || most.Load() > int64(3+inFlight) {
				t.Errorf("%d in flight: only %d instances served, and %d were desired", inFlight, got, most.Load())
			}
			w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
			w.wantReady(p, map[string]int{newCommand: 3})
			w.wantStarts(6)
			w.wantRecords(p, 0)
		})
	}
}

// fewest returns the smallest number of instances that were ready at once, after from
// instances were.
func fewest(news chan runtime.Status, from int) int {
	ready := map[runtime.SlotID]bool{}
	least := from
	for began := false; len(news) > 0; {
		st := <-news
		if delete(ready, st.Slot); st.Ready {
			ready[st.Slot] = true
		}
		if began = began || len(ready) >= from; began {
			least = min(least, len(ready))
		}
	}
	return least
}

// A cancel at any step of a deployment restores the previous instances without an
// interruption.
func TestCancelAtEveryStep(t *testing.T) {
	t.Parallel()
	for started := range 4 {
		inWorld(t, func(w *world) {
			p := w.shopOf(3)
			hold := w.holdAt(3 + started)
			d := w.deploy(p, newCommand, app.NewDeployment{})
			w.pass(time.Second)
			if n := w.ready(p)[newCommand]; n != min(started, 3) {
				t.Errorf("%d new instances serve, want %d", n, started)
			}
			if started == 3 {
				w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
				hold()
				return
			}
			w.cancel(d.GUID)
			w.wantServing(p, 3)
			hold()
			w.pass(time.Minute)
			w.wantStatus(d.GUID, "FINALIZED CANCELED")
			w.wantReady(p, map[string]int{oldCommand: 3})
			w.wantGenerations(p, 0)
			w.wantRecords(p, 0)
		})
	}
}

// holdAt makes every start after the n-th wait until release is called.
func (w *world) holdAt(n int) (release func()) {
	gate := make(chan struct{})
	w.fake.OnStart(func(runtime.Spec) {
		if len(w.fake.Containers()) >= n {
			<-gate
		}
	})
	return func() { close(gate); w.fake.OnStart(nil); synctest.Wait() }
}

// wantServing checks that at least that many instances are ready.
func (w *world) wantServing(process string, want int) {
	w.t.Helper()
	n := 0
	for _, c := range w.ready(process) {
		n += c
	}
	if n < want {
		w.t.Errorf("%d instances serve, want at least %d", n, want)
	}
}

// wantGenerations checks which generations have slots.
func (w *world) wantGenerations(process string, want ...int) {
	w.t.Helper()
	got := map[int]bool{}
	for _, st := range w.sup.Instances(process) {
		got[st.Slot.Generation] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(got)), want); diff != "" {
		w.t.Errorf("generations (-got +want):\n%s", diff)
	}
}

// New instances that crash stop no old one, and no more new ones are started.
func TestNewOnesCrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(3)
		d := w.deploy(p, "exit 1", app.NewDeployment{})
		w.pass(time.Hour)
		w.wantStatus(d.GUID, "ACTIVE DEPLOYING")
		w.wantReady(p, map[string]int{oldCommand: 3})
		if got := w.deployment(d.GUID).Instances; got != 1 {
			t.Errorf("%d new instances are desired, want no more than the one that crashes", got)
		}
		w.cancel(d.GUID)
		w.pass(time.Second)
		w.wantStatus(d.GUID, "FINALIZED CANCELED")
		w.wantReady(p, map[string]int{oldCommand: 3})
		// The change of the canceled deployment waits for the next start: an instance
		// that crashes now keeps the old command.
		w.endOne(p)
		w.pass(time.Second)
		w.wantReady(p, map[string]int{oldCommand: 3})
		w.must(w.registry.Restart(p))
		w.pass(time.Second)
		w.wantReady(p, map[string]int{})
	})
}

// endOne ends the main process of a ready instance.
func (w *world) endOne(process string) {
	w.t.Helper()
	for _, st := range w.sup.Instances(process) {
		if !st.Ready {
			continue
		}
		for _, c := range w.fake.Containers() {
			if c.Spec().Instance == st.Instance {
				c.End(main, 1)
				synctest.Wait()
				return
			}
		}
	}
	w.t.Fatal("no instance serves")
}

// An old instance that crashes during a deployment starts again unchanged.
func TestOldOneCrashesMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(3)
		release := w.holdAt(4)
		d := w.deploy(p, newCommand, app.NewDeployment{})
		w.pass(time.Second)
		w.wantReady(p, map[string]int{oldCommand: 2, newCommand: 1})
		w.fake.OnStart(nil) // blocked starts stay blocked
		w.endOne(p)
		w.pass(time.Second)
		w.wantReady(p, map[string]int{oldCommand: 2, newCommand: 1})
		release()
		w.pass(time.Minute)
		w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
		w.wantReady(p, map[string]int{newCommand: 3})
	})
}

// A deployment during another one supersedes it. Ready instances run until the newest
// ones are ready. A cancel returns to a superseded rolling deployment, or to the
// instances before a superseded canary.
func TestSupersede(t *testing.T) {
	t.Parallel()
	const newest = "sleep 3000"
	for name, tt := range map[string]struct {
		strategy, status string
		cancel           bool
		want             map[string]int
	}{
		"rolling":            {app.Rolling, "FINALIZED SUPERSEDED", false, map[string]int{newest: 3}},
		"rolling, cancelled": {app.Rolling, "FINALIZED SUPERSEDED", true, map[string]int{newCommand: 3}},
		"canary":             {app.Canary, "FINALIZED SUPERSEDED", false, map[string]int{newest: 3}},
		"canary, cancelled":  {app.Canary, "FINALIZED SUPERSEDED", true, map[string]int{oldCommand: 3}},
	} {
		inWorld(t, func(w *world) {
			p := w.shopOf(3)
			hold := w.holdAt(4)
			first := w.deploy(p, newCommand, app.NewDeployment{Strategy: tt.strategy})
			w.pass(time.Second)
			second := w.deploy(p, newest, app.NewDeployment{})
			w.wantStatus(first.GUID, tt.status)
			w.wantServing(p, 3)
			if tt.cancel {
				w.cancel(second.GUID)
			}
			hold()
			w.pass(time.Minute)
			if diff := cmp.Diff(w.ready(p), tt.want); diff != "" {
				t.Errorf("%s: instances that serve (-got +want):\n%s", name, diff)
			}
			if d := w.deployment(second.GUID); d.Active() {
				t.Errorf("%s: deployment = %+v, want it done", name, d)
			}
		})
	}
}

// A canary pauses at each of its steps until it is continued, with one instance more
// than before.
func TestCanary(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(4)
		d := w.deploy(p, newCommand, app.NewDeployment{Strategy: app.Canary, Options: app.DeploymentOptions{Steps: []int{25, 50, 100}}})
		for _, want := range []map[string]int{
			{oldCommand: 4, newCommand: 1}, {oldCommand: 3, newCommand: 2}, {newCommand: 4},
		} {
			w.pass(time.Hour)
			w.wantStatus(d.GUID, "ACTIVE PAUSED")
			w.wantReady(p, want)
			_, err := w.registry.ContinueDeployment(d.GUID)
			w.must(err)
		}
		w.pass(time.Second)
		w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
		w.wantReady(p, map[string]int{newCommand: 4})
		_, err := w.registry.ContinueDeployment(d.GUID)
		if err == nil || err.Error() != "Cannot continue a deployment with status: FINALIZED and reason: DEPLOYED" {
			t.Errorf("err = %v, want it refused", err)
		}
	})
}

// A deployment completes even if the daemon is restarted after every commit. Existing
// instances keep their generation.
func TestDeploymentOverDaemons(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy string
		cancel   int // after that many steps; 0: never
		want     string
	}{
		{app.Rolling, 0, newCommand}, {app.Rolling, 1, oldCommand}, {app.Rolling, 3, oldCommand}, {app.Canary, 0, newCommand}, {app.Canary, 2, oldCommand},
	} {
		inWorld(t, func(w *world) {
			p := w.shopOf(3)
			var armed atomic.Bool
			w.registry.Listen(func(string) {
				if armed.CompareAndSwap(true, false) {
					w.signalDaemon()
				}
			})
			armed.Store(true)
			d := w.deploy(p, newCommand, app.NewDeployment{Strategy: tt.strategy})
			var trail []string
			for step := 1; w.deployment(d.GUID).Active() && step < 30; step++ {
				now := w.deployment(d.GUID)
				trail = append(trail, fmt.Sprintf("%s %d %v", now.State, now.Instances, sharesOf(now)))
				if now.State == app.Paused {
					_, err := w.registry.ContinueDeployment(d.GUID)
					w.must(err)
				}
				if step == tt.cancel {
					w.cancel(d.GUID)
				}
				if n := len(w.fake.Present()); n < 3 {
					t.Errorf("%d instances are there, want at least 3", n)
				}
				armed.Store(true)
				w.daemon()
				w.pass(time.Second)
			}
			armed.Store(false)
			w.daemon()
			if tt.cancel == 0 && len(trail) < 2 {
				t.Errorf("it went on through %d daemons only", len(trail))
			}
			w.pass(time.Minute)
			if diff := cmp.Diff(w.ready(p), map[string]int{tt.want: 3}); diff != "" {
				t.Errorf("%s, cancel %d (-got +want):\n%s\n%s", tt.strategy, tt.cancel, diff, strings.Join(trail, "\n"))
			}
			w.wantRecords(p, 0)
		})
	}
}

func sharesOf(d app.Deployment) map[int]int {
	out := map[int]int{}
	for _, s := range d.Others {
		out[s.Generation] = s.Instances
	}
	return out
}

// A deployment of a stopped app starts it.
func TestDeployStopped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(2)
		w.state(p, app.Stopped)
		w.pass(time.Second)
		d := w.deploy(p, newCommand, app.NewDeployment{})
		w.pass(time.Second)
		w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
		w.wantReady(p, map[string]int{newCommand: 2})
	})
}

// An app that is stopped during a deployment has no instance. The deployment continues
// when the app is started.
func TestStopWhileDeploying(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(3)
		hold := w.holdAt(4)
		d := w.deploy(p, newCommand, app.NewDeployment{})
		w.pass(time.Second)
		w.state(p, app.Stopped)
		hold()
		w.pass(time.Minute)
		w.wantNothing()
		w.wantStatus(d.GUID, "ACTIVE DEPLOYING")
		w.state(p, app.Started)
		w.pass(time.Minute)
		w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
		w.wantReady(p, map[string]int{newCommand: 3})
	})
}

// A cancel does not wait forever for old instances that do not start.
func TestCancelDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(2)
		hold := w.holdAt(3)
		d := w.deploy(p, newCommand, app.NewDeployment{})
		w.pass(time.Second)
		stuck := w.holdAt(0)
		w.cancel(d.GUID)
		w.wantStatus(d.GUID, "ACTIVE CANCELING")
		w.wantServing(p, 2)
		w.pass(10 * time.Minute)
		w.wantStatus(d.GUID, "FINALIZED CANCELED")
		stuck()
		hold()
		w.pass(time.Minute)
		w.wantReady(p, map[string]int{oldCommand: 2})
	})
}

// Active requests of an old instance finish before it is signalled.
func TestOldOnesAreDrained(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ busy, want time.Duration }{{0, 100 * time.Millisecond}, {3 * time.Second, 4 * time.Second}, {time.Hour, 11 * time.Second}} {
		inWorld(t, func(w *world) {
			began := time.Now()
			w.busy = func(runtime.InstanceID) bool { return time.Since(began) < tt.busy }
			p := w.shopOf(1)
			began = time.Now()
			w.deploy(p, newCommand, app.NewDeployment{})
			w.pass(min(tt.busy/2, 5*time.Second) + 1)
			if tt.busy > 0 && slices.Contains(w.fake.Calls(), "signal terminated main") {
				t.Errorf("busy for %s: the old instance was told to end with requests under way", tt.busy)
			}
			w.pass(tt.want)
			if !slices.Contains(w.fake.Calls(), "signal terminated main") {
				t.Errorf("busy for %s: the old instance was not told to end after %s", tt.busy, tt.want)
			}
		})
	}
}
