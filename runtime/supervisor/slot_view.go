package supervisor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
)

// view is the public status of a slot, and its container for calls from outside.
type view struct {
	mu        sync.Mutex // guards the fields below
	status    runtime.Status
	container runtime.Container // for calls from outside; nil if there is none
	lastUsage runtime.Reading   // from the previous request for the usage
	routed    bool              // the router was informed that it is ready
}

// snapshot returns a copy of the status.
func (v *view) snapshot() runtime.Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	st := v.status
	st.Ports = slices.Clone(st.Ports)
	return st
}

// setRouted records whether the router was informed that the instance is ready.
func (v *view) setRouted(ready bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.routed = ready
}

// change is a separate function so that a panic in it unlocks mu.
func (v *view) change(change func(st *runtime.Status)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.status)
}

// setContainer sets or clears the container for calls from outside.
func (v *view) setContainer(c runtime.Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.container, v.lastUsage = c, runtime.Reading{}
	if c != nil {
		v.lastUsage.At = c.Spec().StartedAt
	}
}

// currentContainer returns the container for calls from outside, nil if there is none.
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
	used, err := c.Consumption(ctx, true)
	if err != nil {
		log.Debug("cannot read the resource usage of an instance", "instance", c.Spec().Instance, "err", err)
		return runtime.Usage{}, false
	}
	now := runtime.Reading{At: time.Now(), Consumption: used}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.container != c {
		return runtime.Usage{}, false
	}
	u := now.Since(v.lastUsage)
	// Two readings close together would give an inexact rate: keep the older one as the
	// base.
	if now.At.Sub(v.lastUsage.At) > time.Second || v.lastUsage.CPU == 0 {
		v.lastUsage = now
	}
	return u, true
}

// serves returns the slot's state, and whether the router knows that it is ready. If an
// old instance stopped before that, no instance would serve requests.
func (v *view) serves() (runtime.State, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.status.State, v.routed && v.status.Ready && v.status.State == runtime.Running
}

// undecided reports whether an adopted instance neither serves requests yet nor is ending.
func (v *view) undecided() bool {
	state, serves := v.serves()
	return !serves && slices.Contains([]runtime.State{runtime.Down, runtime.Starting, runtime.Running}, state)
}
