package registry

import (
	"slices"

	"github.com/dewrun/dew/app"
)

// processDiffers tells whether a container of the process would differ from one
// started before. Checks are made from outside and the number of instances is
// no part of any, so they do not count.
func processDiffers(old, p app.Process) bool {
	return old.Command != p.Command ||
		old.MemoryMB != p.MemoryMB ||
		old.DiskMB != p.DiskMB ||
		!sameRate(old.LogRate, p.LogRate) ||
		!slices.Equal(old.Ports, p.Ports)
}

func sameRate(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}
