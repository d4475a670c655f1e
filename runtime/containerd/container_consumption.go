package containerd

import (
	"context"
	"fmt"
	goruntime "runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/process"
)

// Consumption returns the resources that the instance has used so far. Without disk it
// reads only files of the kernel.
func (c *container) Consumption(ctx context.Context, disk bool) (runtime.Consumption, error) {
	used := c.e.cg.Consumption(c.spec.Instance)
	used.Entitled = entitled(c.spec.Memory)
	for _, p := range c.procs {
		used.Printed += p.Printed()
		part := c.e.cg.PartUsage(c.spec.Instance, p.Exec)
		part.Sidecar, part.Limit = p.Name, p.Memory
		p.measured.Store(&measurement{at: time.Now(), part: part, files: process.CountFiles(p.pid)})
		used.Parts = append(used.Parts, part)
	}
	if !disk {
		return used, nil
	}
	if u, ok := c.e.disks.Of(string(c.spec.Instance)); ok {
		used.Disk = u.Used
		return used, nil
	}
	if c.e.Outage() != nil {
		return used, nil // the kernel's numbers are correct without containerd
	}
	ctx, cancel := context.WithTimeout(ctx, connection.CallTimeout)
	defer cancel()
	u, err := c.e.images.Snapshotter().Usage(ctx, c.id)
	if err != nil {
		return used, fmt.Errorf("cannot measure the writable layer: %w", err)
	}
	used.Disk = u.Size
	return used, nil
}

// measurement is the usage of a process at a time.
type measurement struct {
	at    time.Time
	part  runtime.PartUsage
	files int
}

// exitUsage returns what a process used until it exited. Its memory is gone by then, so
// that is from the last measurement.
func exitUsage(cg *cgroup.Hierarchies, id runtime.InstanceID, p *proc) *runtime.ExitUsage {
	last := cg.PartUsage(id, p.Exec)
	u := &runtime.ExitUsage{CPU: last.CPU, Throttled: last.Waited, OOMKills: cg.OOMKills(id, p.Exec)}
	if m := p.measured.Load(); m != nil {
		u.Files = m.files
		u.MeasuredAt, u.Anon, u.File, u.Kernel, u.PIDs = m.at, m.part.Anon, m.part.File, m.part.Kernel, m.part.PIDs
	}
	return u
}

// Paused reports whether a process is paused until its output is stored.
func (c *container) Paused() bool {
	for _, p := range c.procs {
		if c.e.cg.Frozen(c.spec.Instance, p.Exec) {
			return true
		}
	}
	return false
}

// entitled returns the number of cores that are guaranteed to an instance: its share of
// the machine's cores is its share of the machine's memory. 0 means unknown.
func entitled(memory int64) float64 {
	var m unix.Sysinfo_t
	if err := unix.Sysinfo(&m); err != nil || m.Totalram == 0 {
		return 0
	}
	total := float64(m.Totalram) * float64(max(m.Unit, 1))
	return float64(goruntime.NumCPU()) * min(float64(memory)/total, 1)
}
