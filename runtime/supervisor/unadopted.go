package supervisor

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/dewrun/dew/runtime"
)

// Unadopted returns an error for each instance that no try could take over so far.
func (s *Supervisor) Unadopted() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(s.unadopted)) {
		errs = append(errs, errors.New(s.unadopted[id].Error()))
	}
	return errors.Join(errs...)
}

// setAside remembers instances that could not be taken over. Their slots stay taken,
// so that none of them runs twice.
func (s *Supervisor) setAside(left []runtime.Unadopted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range left {
		s.c.Logger.Error("cannot take over an instance, trying again", "app", u.App, "instance", u.Instance, "err", u.Err)
		s.unadopted[u.Instance] = u
	}
}

// holds reports whether an instance that could not be taken over has the slot. The
// caller holds mu.
func (s *Supervisor) holds(id runtime.SlotID) bool {
	for _, u := range s.unadopted {
		if u.Slot == id {
			return true
		}
	}
	return false
}

// holdsTask reports whether an instance that could not be taken over runs the task.
func (s *Supervisor) holdsTask(guid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.unadopted {
		if u.Task == guid {
			return true
		}
	}
	return false
}

// retryUnadopted tries again to take over what could not be, until all is taken over
// or ctx ends.
func (s *Supervisor) retryUnadopted(ctx context.Context) {
	for n := 1; ; n++ {
		s.mu.Lock()
		left := slices.Collect(maps.Values(s.unadopted))
		s.mu.Unlock()
		if len(left) == 0 || !wait(ctx, s.policy.retry(n)) {
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
	s.mu.Lock()
	if u.Err = err; err != nil {
		s.unadopted[u.Instance] = u
	} else {
		delete(s.unadopted, u.Instance)
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		s.c.Logger.Warn("cannot take over an instance yet", "app", u.App, "instance", u.Instance, "err", err)
		return
	case c == nil:
	case c.Spec().Kind == runtime.KindTask:
		s.tasks.begin(ctx, newTaskRun(s.tasks, c.Spec().Task, c))
	default:
		s.takeOver(ctx, []runtime.Container{c})
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
