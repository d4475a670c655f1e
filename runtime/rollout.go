package runtime

import (
	"time"

	"github.com/dewrun/dew/app"
)

// generationCounts are the desired instances of a generation, by their condition.
type generationCounts struct {
	ready    int // requests reach them
	starting int // on their way there
	failing  int // crashed
}

// situation is what the next step of a deployment depends on, beside the desired state.
type situation struct {
	known map[int]generationCounts // by generation
	late  bool                     // nobody waits any longer for what is gone back to
	now   time.Time
}

// advance takes a deployment as far as the situation allows. New instances come
// first, some at a time and only while none of them fails; as many old ones go as
// new ones serve.
func advance(d *app.Deployment, p app.Process, at situation) {
	if d.State == app.Canceling {
		cancelStep(d, p, at)
		return
	}
	own, plan := at.known[p.Generation], d.Plan(p.Instances)
	shrink(d.Others, max(plan.Total-own.ready, 0), at.known)
	if d.State != app.Deploying {
		grow(d.Others, plan.Total-plan.New)
	}
	// Somebody may say any number: only what is still missing is added.
	if next := own.ready + min(d.Options.MaxInFlight, plan.New-own.ready); next > d.Instances && canStartMore(*d, own) {
		d.Instances, d.HealthyAt = next, at.now
	}
	d.Instances = min(d.Instances, plan.New)
	if d.Instances < plan.New || own.ready < plan.New {
		return
	}
	switch d.State {
	case app.Deploying:
		d.State, d.HealthyAt = app.Deployed, at.now
	case app.Prepaused:
		d.State, d.HealthyAt = app.Paused, at.now
	}
}

// canStartMore tells whether further instances may be started beside those that are.
func canStartMore(d app.Deployment, own generationCounts) bool {
	return own.failing == 0 && own.starting < d.Options.MaxInFlight && own.ready >= d.Instances-d.Options.MaxInFlight
}

// cancelStep brings the old instances back, all at once, and lets the new ones go as
// the old ones serve. It does not wait for old ones that fail as well: then nothing
// is gained by keeping what somebody does not want.
func cancelStep(d *app.Deployment, p app.Process, at situation) {
	own := at.known[p.Generation]
	d.Instances = p.Instances
	shrink(d.Others, max(p.Instances-own.ready, 0), at.known)
	alive := 0
	for _, s := range d.Others {
		alive += at.known[s.Generation].ready + at.known[s.Generation].starting
	}
	if own.ready >= p.Instances || own.failing > 0 || alive == 0 || at.late {
		d.State = app.Canceled
	}
}

// shrink leaves at most so many instances beside the process's own generation. Those
// that serve nobody go first, then those that nobody goes back to, then the oldest.
func shrink(others []app.Share, to int, known map[int]generationCounts) {
	more := -to
	for _, s := range others {
		more += s.Instances
	}
	take := func(s *app.Share, most int) {
		n := max(min(more, most), 0)
		s.Instances -= n
		more -= n
	}
	for i := range others {
		take(&others[i], others[i].Instances-known[others[i].Generation].ready)
	}
	for _, dropped := range []bool{true, false} {
		for i := range others {
			if others[i].Dropped == dropped {
				take(&others[i], others[i].Instances)
			}
		}
	}
}

// grow gives the newest of the others what is missing: somebody has scaled while a
// canary is looked at.
func grow(others []app.Share, to int) {
	sum := 0
	for _, s := range others {
		sum += s.Instances
	}
	for i := len(others) - 1; i >= 0 && sum < to; i-- {
		if !others[i].Dropped {
			others[i].Instances += to - sum
			return
		}
	}
}
