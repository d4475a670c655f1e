package supervisor

import (
	"reflect"
	"slices"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/rollout"
)

// deploy takes the deployment of a process a step further, if it is time. What it
// writes is desired state: it comes back as a sync.
func (s *Supervisor) deploy(w wantedSlots) {
	if !s.follow(w) {
		return
	}
	at := rollout.Situation{Known: s.countGenerations(w), Now: time.Now().UTC().Round(0)}
	at.Late = w.deployment.State == app.Canceling && !at.Now.Before(w.deployment.ChangedAt.Add(s.policy.CancelLimit))
	next := *w.deployment
	next.Others = slices.Clone(next.Others)
	if rollout.Advance(&next, w.desired, at); reflect.DeepEqual(next, *w.deployment) {
		return
	}
	var to app.Deployment
	err := s.c.Registry.MoveDeployment(w.deployment.GUID, func(p app.Process, d *app.Deployment) {
		// Somebody may have changed it since: the facts stay what they are.
		rollout.Advance(d, p, at)
		to = *d
	})
	if err != nil {
		s.c.Logger.Error("cannot move deployment, trying again", "deployment", w.deployment.GUID, "err", err)
		time.AfterFunc(s.policy.FirstRetry, func() { s.Sync(w.process) })
		return
	}
	s.c.Logger.Info("deployment moved", "app", to.App, "deployment", to.GUID, "state", to.State, "instances", to.Instances)
	if !to.Active() {
		s.forgetGenerations(w.desired)
	}
}

// follow notes whether the process is being deployed: then every change of its slots
// is looked at. It returns false when it is not.
func (s *Supervisor) follow(w wantedSlots) bool {
	var state app.DeploymentState
	if w.deployment != nil {
		state = w.deployment.State
	}
	s.mu.Lock()
	was := s.deploying[w.process]
	if state == "" {
		delete(s.deploying, w.process)
	} else {
		s.deploying[w.process] = state
	}
	s.mu.Unlock()
	if state == app.Canceling && was != state {
		until := time.Until(w.deployment.ChangedAt.Add(s.policy.CancelLimit))
		time.AfterFunc(until, func() { s.Sync(w.process) })
	}
	return state != ""
}

// slotChanged is told of each change of a slot.
func (s *Supervisor) slotChanged(process string) {
	s.mu.Lock()
	_, moving := s.deploying[process]
	s.mu.Unlock()
	if moving {
		s.Sync(process)
	}
}

// countGenerations counts the desired slots of a process by generation.
func (s *Supervisor) countGenerations(w wantedSlots) map[int]rollout.Counts {
	out := map[int]rollout.Counts{}
	seen := map[int]int{}
	for _, sl := range s.of(w.process) {
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

// keptGenerations is how many generations of a process have their crashes remembered.
const keptGenerations = 10

// forgetGenerations bounds what deployment after deployment leaves behind. The one that
// runs may be older than all that were cancelled: its crashes count on.
func (s *Supervisor) forgetGenerations(p app.Process) {
	old := max(p.Newest, p.Generation) - keptGenerations
	if err := s.exits.RemoveGenerations(p.GUID, func(n int) bool { return n < old && n != p.Generation }); err != nil {
		s.c.Logger.Error("cannot forget the crashes of old generations", "process", p.GUID, "err", err)
	}
}
