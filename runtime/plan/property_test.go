package plan

import (
	"fmt"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/testkit"
)

// The parts of a split are together the memory of the container, main has at least 1 MB,
// and a split is refused exactly if nothing would be left for main.
func TestSplitSums(t *testing.T) {
	r := testkit.Random(t)
	for range 10_000 {
		total := 1 + r.IntN(2048)
		var sidecars []app.Sidecar
		declared := 0
		for i := range r.IntN(6) {
			s := app.Sidecar{Name: fmt.Sprint(i), MemoryMB: r.IntN(total/2 + 1)}
			sidecars, declared = append(sidecars, s), declared+s.MemoryMB
		}
		got, err := splitMemory(total, sidecars)
		if refused := declared >= total; refused != (err != nil) {
			t.Fatalf("%dM with %+v: error %v, want one: %v", total, sidecars, err, refused)
		}
		if err != nil {
			continue
		}
		sum := got.main
		for i, mb := range got.sidecars {
			sum += mb
			if mb != sidecars[i].MemoryMB || got.memoryLimit(mb) > total || got.memoryLimit(mb) < 1 {
				t.Fatalf("sidecar %d has %dM and sees %dM of %dM", i, mb, got.memoryLimit(mb), total)
			}
		}
		if sum != total || got.main < 1 {
			t.Fatalf("%dM with %+v is split into %+v, together %dM", total, sidecars, got, sum)
		}
	}
}
