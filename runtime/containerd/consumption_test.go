package containerd

import (
	goruntime "runtime"
	"testing"
)

// The whole memory gives all cores, and half of it gives half of them. More memory than
// the machine has gives no more.
func TestEntitled(t *testing.T) {
	all := float64(goruntime.NumCPU())
	if got := entitled(1 << 62); got != all {
		t.Errorf("all memory entitles to %v cores, want %v", got, all)
	}
	one, two := entitled(1<<20), entitled(2<<20)
	if one <= 0 || two != 2*one || two > all {
		t.Errorf("1 MiB entitles to %v cores and 2 MiB to %v", one, two)
	}
}
