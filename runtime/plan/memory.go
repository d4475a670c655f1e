package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
)

// mebibyte is the unit M of a manifest.
const mebibyte = 1 << 20

// split is the division of a container's memory among its processes, in MB.
type split struct {
	total    int
	main     int
	sidecars []int // in the given order; 0: only the container's limit
}

// splitMemory gives each sidecar its declared memory, and main the rest. It is an error
// if nothing is left for main, because main could not start.
func splitMemory(total int, sidecars []app.Sidecar) (split, error) {
	s := split{total: total, main: total}
	var who []string
	for _, c := range sidecars {
		s.sidecars = append(s.sidecars, c.MemoryMB)
		if c.MemoryMB > 0 {
			s.main -= c.MemoryMB
			who = append(who, fmt.Sprintf("'%s' %dM", c.Name, c.MemoryMB))
		}
	}
	if s.main <= 0 {
		return split{}, fmt.Errorf("the memory of the sidecars (%s) must be less than the memory of the process (%dM): increase the memory of the process or decrease that of the sidecars",
			strings.Join(who, ", "), total)
	}
	return s, nil
}

// memoryLimit returns the limit that a process sees: that of its leaf, or the
// container's if the leaf has none.
func (s split) memoryLimit(leaf int) int {
	if leaf == 0 {
		return s.total
	}
	return leaf
}

// byName sorts sidecars in the order of the exec ids, leaves and capture files.
func byName(sidecars []app.Sidecar) []app.Sidecar {
	sorted := slices.Clone(sidecars)
	slices.SortFunc(sorted, func(a, b app.Sidecar) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	})
	return sorted
}
