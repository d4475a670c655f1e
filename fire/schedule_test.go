package fire_test

import (
	"slices"
	"testing"

	"github.com/dewrun/dew/fire"
	"github.com/dewrun/dew/fire/faults"
)

// A seed determines its schedule, and a longer schedule begins with the shorter one.
func TestScheduleReproduces(t *testing.T) {
	long, short := fire.Schedule(7, 50, faults.All()), fire.Schedule(7, 20, faults.All())
	short[19].Joint = long[19].Joint // the invariants are checked after the last fault
	if !slices.Equal(long[:20], short) {
		t.Errorf("the first steps of seed 7 differ:\n%v\n%v", long[:20], short)
	}
	if slices.Equal(short, fire.Schedule(8, 20, faults.All())) {
		t.Error("the seeds 7 and 8 have the same schedule")
	}
}

// The short schedule has each fault once, and checks the invariants after the last of
// those that happen together.
func TestOnceHasEachFault(t *testing.T) {
	var got, want []string
	steps := fire.Once(3, faults.All())
	for _, s := range steps {
		got = append(got, s.Fault)
	}
	for _, f := range faults.All() {
		want = append(want, f.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("faults = %q, want %q", got, want)
	}
	if joint := steps[len(steps)-1].Joint; joint {
		t.Error("nothing is checked after the last fault")
	}
}
