package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/testkit"
)

func randomUse(r *rand.Rand) Use {
	u := Use{Routes: r.IntN(5), Services: r.IntN(5), Keys: r.IntN(5), Domains: r.IntN(3)}
	for i := range r.IntN(4) {
		u.Add(fmt.Sprint(i), Member{Name: fmt.Sprint(i), Task: r.IntN(4) == 0, Instances: 1, Memory: 64 * (1 + r.IntN(4)), LogRate: int64(r.IntN(3))*512 - 1})
	}
	return u
}

func randomLimit(r *rand.Rand, most int) *int {
	if r.IntN(3) == 0 {
		return nil
	}
	n := r.IntN(most)
	return &n
}

// A change that uses nothing more is always allowed. A change to a use within all limits
// is allowed, and one to a use over a limit only if that use does not grow.
func TestQuotaArithmetic(t *testing.T) {
	r := testkit.Random(t)
	refused := 0
	for range 10_000 {
		p := Place{Org: r.IntN(2) == 0, Name: "p", Quota: app.Quota{Name: "q", Limits: app.Limits{
			TotalMemory: randomLimit(r, 800), Instances: randomLimit(r, 5), Tasks: randomLimit(r, 3), Routes: randomLimit(r, 5), Services: randomLimit(r, 5), Keys: randomLimit(r, 5),
		}}}
		before, after := randomUse(r), randomUse(r)
		if why := p.Check(before, before); why != "" {
			t.Fatalf("no change of %+v is refused: %s", before, why)
		}
		if why := p.Check(after, Use{}); why != "" {
			t.Fatalf("the end of everything is refused: %s", why)
		}
		why, over := p.Check(before, after), p.Over(after)
		if why != "" {
			refused++
		}
		if len(over) == 0 && why != "" {
			t.Fatalf("%+v is within all limits %+v, but refused: %s", after, p.Quota, why)
		}
		if why == "" && len(over) > 0 && len(p.Over(before)) == 0 {
			t.Fatalf("from %+v to %+v is allowed, but over: %v", before, after, over)
		}
	}
	if refused == 0 {
		t.Error("no change was refused: the test checks nothing")
	}
}
