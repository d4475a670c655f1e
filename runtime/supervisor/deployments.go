package supervisor

import (
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/runtime/rollout"
)

// deployments advances the deployments of processes, step by step, and tracks which
// processes are being deployed.
type deployments struct {
	registry *registry.Registry
	exits    *runtime.ExitLog
	policy   policy.Policy
	log      *slog.Logger
	slots    func(process string) []*Slot
	sync     func(process string) // brings the process to its desired state in the background

	mu     sync.Mutex                     // guards states
	states map[string]app.DeploymentState // by process
}

// advance takes the deployment of a process one step further, if possible. It writes to
// the desired state, which triggers another sync.
func (d *deployments) advance(w wantedSlots) {
	if !d.follow(w) {
		return
	}
	at := rollout.Situation{Known: d.countGenerations(w), Now: time.Now().UTC().Round(0)}
	at.Late = w.deployment.State == app.Canceling && !at.Now.Before(w.deployment.ChangedAt.Add(d.policy.CancelLimit))
	next := *w.deployment
	next.Others = slices.Clone(next.Others)
	if rollout.Advance(&next, w.desired, at); reflect.DeepEqual(next, *w.deployment) {
		return
	}
	var to app.Deployment
	err := d.registry.MoveDeployment(w.deployment.GUID, func(p app.Process, now *app.Deployment) {
		// A user can have changed the deployment since then; the situation stays the
		// same.
		rollout.Advance(now, p, at)
		to = *now
	})
	if err != nil {
		d.log.Error("cannot advance deployment, trying again", "deployment", w.deployment.GUID, "err", err)
		time.AfterFunc(d.policy.FirstRetry, func() { d.sync(w.process) })
		return
	}
	d.log.Info("deployment changed its state", "app", to.App, "deployment", to.GUID, "state", to.State, "instances", to.Instances)
	if !to.Active() {
		d.deleteOldRecords(w.desired)
	}
}

// follow records whether the process is being deployed. If it is, every change of its
// slots triggers a sync. It returns false if it is not being deployed.
func (d *deployments) follow(w wantedSlots) bool {
	var state app.DeploymentState
	if w.deployment != nil {
		state = w.deployment.State
	}
	d.mu.Lock()
	was := d.states[w.process]
	if state == "" {
		delete(d.states, w.process)
	} else {
		d.states[w.process] = state
	}
	d.mu.Unlock()
	if state == app.Canceling && was != state {
		until := time.Until(w.deployment.ChangedAt.Add(d.policy.CancelLimit))
		time.AfterFunc(until, func() { d.sync(w.process) })
	}
	return state != ""
}

// slotChanged is called for each change of a slot.
func (d *deployments) slotChanged(process string) {
	d.mu.Lock()
	_, moving := d.states[process]
	d.mu.Unlock()
	if moving {
		d.sync(process)
	}
}

// countGenerations counts the desired slots of a process by generation.
func (d *deployments) countGenerations(w wantedSlots) map[int]rollout.Counts {
	out := map[int]rollout.Counts{}
	seen := map[int]int{}
	for _, sl := range d.slots(w.process) {
		if !w.has(sl.id) {
			continue
		}
		f := out[sl.id.Generation]
		switch state, routed := sl.serves(); {
		case routed:
			f.Ready++
		case state == runtime.Crashed:
			f.Failing++
		default:
			f.Starting++
		}
		out[sl.id.Generation] = f
		seen[sl.id.Generation]++
	}
	for generation, n := range w.counts {
		f := out[generation]
		f.Starting += n - seen[generation]
		out[generation] = f
	}
	return out
}

// keptGenerations is the number of generations of a process whose crashes are stored.
const keptGenerations = 10

// deleteOldRecords deletes the crash records of old generations. The running
// generation can be older than all canceled ones, and its crashes continue to count.
func (d *deployments) deleteOldRecords(p app.Process) {
	old := max(p.Newest, p.Generation) - keptGenerations
	if err := d.exits.RemoveGenerations(p.GUID, func(n int) bool { return n < old && n != p.Generation }); err != nil {
		d.log.Error("cannot delete the crash records of old generations", "process", p.GUID, "err", err)
	}
}
