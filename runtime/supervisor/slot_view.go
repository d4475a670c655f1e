package supervisor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
)

// view is what others see of a slot, and its container as others reach it.
type view struct {
	mu        sync.Mutex // guards the fields below
	status    runtime.Status
	container runtime.Container // what others reach; nil while there is none
	lastUsage sample            // when somebody last asked what it takes
	routed    bool              // who leads requests was told that it is ready
}

// snapshot is a copy of the status.
func (v *view) snapshot() runtime.Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	st := v.status
	st.Ports = slices.Clone(st.Ports)
	return st
}

// setRouted notes whether who leads requests was told that the instance is ready.
func (v *view) setRouted(ready bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routed = ready
}

// change is its own function so that a panic in it gives the lock back.
func (v *view) change(change func(st *runtime.Status)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.status)
}

// setContainer makes a container, or none, what others reach in this slot.
func (v *view) setContainer(c runtime.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.container, v.lastUsage = c, sample{}
	if c != nil {
		v.lastUsage.at = c.Spec().StartedAt
	}
}

// currentContainer is the container that others reach in this slot; nil where there is none.
func (v *view) currentContainer() runtime.Container {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.container
}

func (v *view) usage(ctx context.Context, log *slog.Logger) (runtime.Usage, bool) {
	c := v.currentContainer()
	if c == nil {
		return runtime.Usage{}, false
	}
	used, err := c.Consumption(ctx)
	if err != nil {
		log.Debug("cannot read what an instance takes", "instance", c.Spec().Instance, "err", err)
		return runtime.Usage{}, false
	}
	now := sample{at: time.Now(), cpu: used.CPU, printed: used.Printed}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.container != c {
		return runtime.Usage{}, false
	}
	u := runtime.Usage{Entitled: used.Entitled, Memory: used.Memory, Disk: used.Disk, Parts: used.Parts}
	u.CPU, u.LogRate = now.since(v.lastUsage)
	// Readers close together would see noise: the older reading stays their base.
	if now.at.Sub(v.lastUsage.at) > time.Second || v.lastUsage.cpu == 0 {
		v.lastUsage = now
	}
	return u, true
}

// serves is the slot's state, and whether who leads requests knows that it is ready:
// an old instance that left earlier would leave a hole.
func (v *view) serves() (runtime.State, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.status.State, v.routed && v.status.Ready && v.status.State == runtime.Running
}

// sample is a Consumption and when it was read.
type sample struct {
	at      time.Time
	cpu     time.Duration
	printed int64
}

// since turns two readings into a rate. The first reading counts from the start
// of the instance.
func (s sample) since(before sample) (cpu float64, printed int64) {
	d := s.at.Sub(before.at)
	if d <= 0 || s.cpu < before.cpu || s.printed < before.printed {
		return 0, 0
	}
	return float64(s.cpu-before.cpu) / float64(d), int64(float64(s.printed-before.printed) / d.Seconds())
}
