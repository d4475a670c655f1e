package containerd

import (
	"context"
	"fmt"
	goruntime "runtime"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Consumption tells what the whole instance has taken so far.
func (t *task) Consumption(ctx context.Context) (runtime.Consumption, error) {
	c := t.e.cg.consumption(t.spec.Instance)
	c.Entitled, c.Printed = entitled(t.spec.Memory), t.printed()
	for _, p := range t.procs {
		c.Parts = append(c.Parts, runtime.PartUsage{Sidecar: p.Name, Memory: t.e.cg.used(t.spec.Instance, p.Exec), Limit: p.Memory})
	}
	if t.e.Outage() != nil {
		return c, nil // the kernel's figures are right without containerd
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	u, err := t.e.images.snapshotter().Usage(ctx, t.id)
	if err != nil {
		return c, fmt.Errorf("cannot measure the writable layer: %w", err)
	}
	c.Disk = u.Size
	return c, nil
}

// Paused tells whether a process stands still until its output is stored.
func (t *task) Paused() bool {
	for _, p := range t.procs {
		if t.e.cg.frozen(t.spec.Instance, p.Exec) {
			return true
		}
	}
	return false
}

// printed is how many bytes the processes that run have printed.
func (t *task) printed() (n int64) {
	for _, p := range t.procs {
		for _, tail := range []*logstream.Tail{p.out, p.err} {
			if tail != nil {
				n += tail.Size()
			}
		}
	}
	return n
}

// entitled is how many cores an instance may count on: a part of the machine's as its
// memory is one of the machine's. 0: nobody knows.
func entitled(memory int64) float64 {
	var m unix.Sysinfo_t
	if err := unix.Sysinfo(&m); err != nil || m.Totalram == 0 {
		return 0
	}
	total := float64(m.Totalram) * float64(max(m.Unit, 1))
	return float64(goruntime.NumCPU()) * min(float64(memory)/total, 1)
}
