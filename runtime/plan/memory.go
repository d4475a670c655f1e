package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
)

// mebibyte is what M means in a manifest.
const mebibyte = 1 << 20

// split is who gets how much of a container's memory, in MB.
type split struct {
	total    int
	main     int
	sidecars []int // in the order they were given; 0: only the container's limit
}

// splitMemory gives each sidecar what it declares and main the rest. Nothing
// left for main is refused: it could not even start.
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
		return split{}, fmt.Errorf("the memory of its sidecars (%s) must be less than the process's %dM: give the process more or the sidecars less",
			strings.Join(who, ", "), total)
	}
	return s, nil
}

// memoryLimit is what a process is told it may use: its leaf's limit, or the
// container's where it has none of its own.
func (s split) memoryLimit(leaf int) int {
	if leaf == 0 {
		return s.total
	}
	return leaf
}

// byName sorts sidecars as exec ids, leaves and capture files count them.
func byName(sidecars []app.Sidecar) []app.Sidecar {
	sorted := slices.Clone(sidecars)
	slices.SortFunc(sorted, func(a, b app.Sidecar) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	})
	return sorted
}
