package rollout

import (
	"time"

	"github.com/dewrun/dew/app"
)

// Counts are the desired instances of a generation, by their condition.
type Counts struct {
	Ready    int // requests reach them
	Starting int // on their way there
	Failing  int // crashed
}

// Situation is what the next step of a deployment depends on, beside the desired state.
type Situation struct {
	Known map[int]Counts // by generation
	Late  bool           // nobody waits any longer for what is gone back to
	Now   time.Time
}

// Advance takes a deployment as far as the situation allows. New instances come
// first, some at a time and only while none of them fails; as many old ones go as
// new ones serve.
func Advance(d *app.Deployment, p app.Process, at Situation) {
	if d.State == app.Canceling {
		cancelStep(d, p, at)
		return
	}
	own, plan := at.Known[p.Generation], d.Plan(p.Instances)
	shrink(d.Others, max(plan.Total-own.Ready, 0), at.Known)
	if d.State != app.Deploying {
		grow(d.Others, plan.Total-plan.New)
	}
	// Somebody may say any number: only what is still missing is added.
	if next := own.Ready + min(d.Options.MaxInFlight, plan.New-own.Ready); next > d.Instances && canStartMore(*d, own) {
		d.Instances, d.HealthyAt = next, at.Now
	}
	d.Instances = min(d.Instances, plan.New)
	if d.Instances < plan.New || own.Ready < plan.New {
		return
	}
	switch d.State {
	case app.Deploying:
		d.State, d.HealthyAt = app.Deployed, at.Now
	case app.Prepaused:
		d.State, d.HealthyAt = app.Paused, at.Now
	}
}

// canStartMore tells whether further instances may be started beside those that are.
func canStartMore(d app.Deployment, own Counts) bool {
	return own.Failing == 0 && own.Starting < d.Options.MaxInFlight && own.Ready >= d.Instances-d.Options.MaxInFlight
}

// cancelStep brings the old instances back, all at once, and lets the new ones go as
// the old ones serve. It does not wait for old ones that fail as well: then nothing
// is gained by keeping what somebody does not want.
func cancelStep(d *app.Deployment, p app.Process, at Situation) {
	own := at.Known[p.Generation]
	d.Instances = p.Instances
	shrink(d.Others, max(p.Instances-own.Ready, 0), at.Known)
	alive := 0
	for _, s := range d.Others {
		alive += at.Known[s.Generation].Ready + at.Known[s.Generation].Starting
	}
	if own.Ready >= p.Instances || own.Failing > 0 || alive == 0 || at.Late {
		d.State = app.Canceled
	}
}

// shrink leaves at most so many instances beside the process's own generation. Those
// that serve nobody go first, then those that nobody goes back to, then the oldest.
func shrink(others []app.Share, to int, known map[int]Counts) {
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
		take(&others[i], others[i].Instances-known[others[i].Generation].Ready)
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
