package rollout

import (
	"time"

	"github.com/dewrun/dew/app"
)

// Counts are the numbers of desired instances of a generation, by condition.
type Counts struct {
	Ready    int // can receive requests
	Starting int // will be ready
	Failing  int // crashed
}

// Situation is the data for the next step of a deployment, in addition to the desired
// state.
type Situation struct {
	Known map[int]Counts // by generation
	Late  bool           // the time limit for the old instances in a canceled deployment has passed
	Now   time.Time
}

// Advance takes a deployment as far as the situation allows. It starts new instances
// first, a few at a time and only while none of them fails. It stops as many old
// instances as new ones are ready.
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
	// MaxInFlight can be any number: add only the missing instances.
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

// canStartMore reports whether more instances can be started now.
func canStartMore(d app.Deployment, own Counts) bool {
	return own.Failing == 0 && own.Starting < d.Options.MaxInFlight && own.Ready >= d.Instances-d.Options.MaxInFlight
}

// cancelStep starts the old instances again, all at once, and stops the new ones as the
// old ones become ready. It does not wait for old instances that also fail: keeping the
// unwanted new ones would not help.
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

// shrink reduces the instances outside the process's own generation to the given
// number. It removes those that are not ready first, then those that no cancellation
// returns to, then the oldest.
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

// grow adds the missing instances to the newest of the others, for a process that was
// scaled while a canary is paused.
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
