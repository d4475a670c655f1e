package containerd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/network"
)

// knownContainers are the containers of the instances that this daemon started or
// adopted and has not deleted.
type knownContainers struct {
	mu         sync.Mutex // guards byInstance
	byInstance map[runtime.InstanceID]*container
}

// add stores a container until it is removed, so that checks find it.
func (k *knownContainers) add(c *container) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byInstance == nil {
		k.byInstance = map[runtime.InstanceID]*container{}
	}
	k.byInstance[c.spec.Instance] = c
}

func (k *knownContainers) has(id runtime.InstanceID) bool { return k.get(id) != nil }

// get returns a container, or nil.
func (k *knownContainers) get(id runtime.InstanceID) *container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byInstance[id]
}

// remove removes a container from memory, and returns it.
func (k *knownContainers) remove(id runtime.InstanceID) *container {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.byInstance[id]
	delete(k.byInstance, id)
	return c
}

func (k *knownContainers) all() []*container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.byInstance))
}

// pendingRemovals are the resources that could not be removed yet.
type pendingRemovals struct {
	mu        sync.Mutex // guards the fields below
	instances map[runtime.InstanceID]unremoved
	veths     map[string]time.Time // links that the kernel should remove soon
	late      map[runtime.InstanceID]lateRemoval
	lateTime  time.Duration // 0: lateCallTime
}

// lateRemoval is an instance that is removed once more.
type lateRemoval struct {
	app   string // guid
	since time.Time
}

// lateCallTime is far longer than containerd needs for a call whose caller has left.
const lateCallTime = 10 * time.Second

// unremoved is an instance that could not be removed.
type unremoved struct {
	app string // guid, empty if unknown
	err error  // from the last try
}

// addInstance records an instance that could not be removed, and why.
func (r *pendingRemovals) addInstance(id runtime.InstanceID, app string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances == nil {
		r.instances = map[runtime.InstanceID]unremoved{}
	}
	r.instances[id] = unremoved{app, err}
}

// addLate records an instance that was removed after a call without an answer. containerd
// can complete the call after that, so the instance is removed once more.
func (r *pendingRemovals) addLate(id runtime.InstanceID, app string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late == nil {
		r.late = map[runtime.InstanceID]lateRemoval{}
	}
	r.late[id] = lateRemoval{app, time.Now()}
}

// awaits reports whether containerd can still be completing a call for a container.
func (r *pendingRemovals) awaits(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _ := names.Instance(name)
	_, ok := r.late[id]
	return ok
}

// done records that an instance is removed.
func (r *pendingRemovals) done(id runtime.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.instances, id)
}

// addVeth records a link that the kernel should remove by itself.
func (r *pendingRemovals) addVeth(id runtime.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.veths == nil {
		r.veths = map[string]time.Time{}
	}
	r.veths[network.VethName(id)] = time.Now()
}

// vethRemovalTime is far longer than the kernel needs to remove a namespace.
const vethRemovalTime = 10 * time.Second

// due returns the instances, and the links that the kernel should have removed by now.
// It forgets those links, and the instances that are due only once.
func (r *pendingRemovals) due() (map[runtime.InstanceID]unremoved, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var links []string
	for name, since := range r.veths {
		if time.Since(since) > vethRemovalTime {
			links = append(links, name)
			delete(r.veths, name)
		}
	}
	instances := map[runtime.InstanceID]unremoved{}
	for id, l := range r.late {
		if time.Since(l.since) > cmp.Or(r.lateTime, lateCallTime) {
			instances[id] = unremoved{app: l.app}
			delete(r.late, id)
		}
	}
	maps.Copy(instances, r.instances)
	return instances, links
}

// err returns an error for each instance.
func (r *pendingRemovals) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs error
	for _, id := range slices.Sorted(maps.Keys(r.instances)) {
		errs = errors.Join(errs, fmt.Errorf("cannot remove instance %s: %w", id, r.instances[id].err))
	}
	return errs
}
