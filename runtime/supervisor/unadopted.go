package supervisor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/dewrun/dew/runtime"
)

// Unadopted returns an error for each instance that could not be taken over so far.
func (s *Supervisor) Unadopted() error { return s.unadopted.err() }

// addUnadopted remembers instances that could not be taken over. Their slots stay in use,
// so that none of them runs twice.
func (s *Supervisor) addUnadopted(left []runtime.Unadopted) {
	for _, u := range left {
		s.c.Logger.Error("cannot adopt an instance, trying again", "app", u.App, "instance", u.Instance, "err", u.Err)
		s.unadopted.put(u)
	}
}

// retryUnadopted tries again to take over the remaining instances, until none is left
// or ctx is done.
func (s *Supervisor) retryUnadopted(ctx context.Context) {
	for n := 1; ; n++ {
		left := s.unadopted.all()
		if len(left) == 0 || !wait(ctx, s.policy.Retry(n)) {
			return
		}
		for _, u := range left {
			s.retryOne(ctx, u)
		}
	}
}

func (s *Supervisor) retryOne(ctx context.Context, u runtime.Unadopted) {
	var c runtime.Container
	var err error
	if s.unwanted(u) {
		err = u.Remove(ctx)
	} else {
		c, err = u.Retry(ctx)
	}
	if err == nil && c == nil { // nothing is left of it
		err = s.addresses.Release(u.Instance)
	}
	if ctx.Err() != nil {
		return
	}
	if u.Err = err; err != nil {
		s.unadopted.put(u)
	} else {
		s.unadopted.remove(u.Instance)
	}
	switch {
	case err != nil:
		s.c.Logger.Warn("cannot adopt an instance yet", "app", u.App, "instance", u.Instance, "err", err)
		return
	case c == nil:
	case c.Spec().Kind == runtime.KindTask:
		s.tasks.begin(ctx, newTaskRun(s.tasks, c.Spec().Task, c))
	default:
		s.assignSlots(ctx, []runtime.Container{c})
	}
	s.SyncTask(u.Task)
	s.Sync(u.Slot.Process)
}

// unwanted reports whether an instance should not run any more: its app was stopped,
// scaled down or deleted.
func (s *Supervisor) unwanted(u runtime.Unadopted) bool {
	if u.Task != "" || u.Slot == (runtime.SlotID{}) {
		return false
	}
	w, err := s.wanted(u.Slot.Process)
	return err == nil && !w.has(u.Slot)
}

// unadoptedSet has the instances that could not be taken over so far. Their slots and
// tasks stay in use.
type unadoptedSet struct {
	mu   sync.Mutex
	byID map[runtime.InstanceID]runtime.Unadopted // guarded by mu
}

func (s *unadoptedSet) put(u runtime.Unadopted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[u.Instance] = u
}

func (s *unadoptedSet) remove(id runtime.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

func (s *unadoptedSet) all() []runtime.Unadopted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byID))
}

// err returns an error for each instance, sorted by instance id.
func (s *unadoptedSet) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		errs = append(errs, errors.New(s.byID[id].Error()))
	}
	return errors.Join(errs...)
}

// holds reports whether one of the instances has the slot.
func (s *unadoptedSet) holds(id runtime.SlotID) bool {
	return slices.ContainsFunc(s.all(), func(u runtime.Unadopted) bool { return u.Slot == id })
}

// holdsTask reports whether one of the instances runs the task.
func (s *unadoptedSet) holdsTask(guid string) bool {
	return slices.ContainsFunc(s.all(), func(u runtime.Unadopted) bool { return u.Task == guid })
}
