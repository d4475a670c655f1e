package fire

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dewrun/dew/fire/faults"
)

// Step is one fault of a schedule.
type Step struct {
	Fault string
	Pause time.Duration // before the fault
	Draw  faults.Draw
	Joint bool // the next step follows at once, before the invariants are checked
}

const (
	longestPause = 250 * time.Millisecond
	shortestHold = 50 * time.Millisecond
	longestHold  = 2 * time.Second
)

// The number of faults between two checks of the invariants: the mean of a long schedule,
// and that of Once.
const together, onceTogether = 10, 5

// Schedule returns the first n steps of a seed. A longer schedule of the same seed
// begins with the same faults.
func Schedule(seed uint64, n int, all []faults.Fault) []Step {
	r := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, f := range all {
		total += f.Weight
	}
	steps := make([]Step, n)
	for i := range steps {
		f := choose(all, r.IntN(total))
		steps[i] = draw(r, f, longestHold)
		steps[i].Joint = r.IntN(together) > 0 && !f.Alone
	}
	if n > 0 {
		steps[n-1].Joint = false
	}
	return steps
}

// Once returns a schedule with each fault once, in an order that the seed determines.
// Its faults are short. Those that dewd notices only in its regular checks happen together.
func Once(seed uint64, all []faults.Fault) []Step {
	r := rand.New(rand.NewPCG(seed, 1))
	var steps, joint []Step
	for _, f := range all {
		s := draw(r, f, longestHold/10)
		s.Pause /= 10
		s.Joint = !f.Alone
		if f.Restored {
			joint = append(joint, s)
		} else {
			steps = append(steps, s)
		}
	}
	r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	steps = slices.Insert(steps, 0, joint...)
	for i := len(joint) - 1; i < len(steps); i += onceTogether {
		steps[max(i, 0)].Joint = false
	}
	steps[len(steps)-1].Joint = false
	return steps
}

// draw returns a step. Half of the faults last less than an eighth of the longest time.
func draw(r *rand.Rand, f faults.Fault, longest time.Duration) Step {
	x := r.Float64()
	return Step{
		Fault: f.Name, Pause: time.Duration(r.Int64N(int64(longestPause))),
		Draw: faults.Draw{Target: r.Uint64(), Byte: r.Uint64(), Hold: shortestHold + time.Duration(x*x*x*float64(longest))},
	}
}

// choose returns the fault at a point of the sum of weights.
func choose(all []faults.Fault, point int) faults.Fault {
	for _, f := range all {
		if point -= f.Weight; point < 0 {
			return f
		}
	}
	return all[len(all)-1]
}
