package supervisor

import (
	"context"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor/async"
	"github.com/dewrun/dew/runtime/supervisor/next"
)

// prepareNext creates the next instance while the slot removes the current one, if the
// engine can do that. Its processes wait.
func (s *Slot) prepareNext(ctx context.Context) {
	if s.stray || s.stopping() || s.inst.spec.Kind != runtime.KindInstance {
		return
	}
	if s.next != nil && !s.next.Current() {
		s.dropNext()
	}
	if s.next == nil {
		s.next = s.sup.next.Prepare(ctx, s.id)
	}
	if s.next != nil && s.next.Err == nil {
		s.logCell(s.next.Spec, logstream.Out, "Creating container")
	}
}

// prepareSpare creates the next instance while the current one runs. It returns the time
// for another try, or what closes if the instance fails.
func prepareSpare(ctx context.Context, s *Slot) (again <-chan time.Time, failed <-chan struct{}) {
	if s.stray || s.next != nil || s.inst.spec.Kind != runtime.KindInstance {
		return nil, nil
	}
	n := s.sup.next.Spare(ctx, s.id, s.inst.spec.App)
	if n == nil {
		return s.sup.next.SpareDue(next.NextSpare), nil
	}
	s.next = n
	if n.Err != nil {
		s.dropNext()
		return s.sup.next.SpareDue(next.NextSpare), nil
	}
	return nil, n.Failed()
}

// dropNext removes the prepared instance in the background, if there is one. The slot
// waits for that before it is down.
func (s *Slot) dropNext() {
	n := s.next
	if s.next = nil; n == nil {
		return
	}
	behind(s, n.ID, func() {
		if err := n.Drop(); err != nil {
			s.log.Error("cannot release address", "instance", n.ID, "err", err)
		}
	})
}

// behind removes an instance on another goroutine.
func behind(s *Slot, id runtime.InstanceID, remove func()) {
	s.removing.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic during the removal of an instance", "instance", id, "panic", v, "stack", string(async.StackOf(v)))
			}
		}()
		remove()
	})
}

// startsAtOnce reports whether the next instance starts right after the crash.
func startsAtOnce(r *runtime.ExitRecord) bool {
	return r != nil && !r.GivenUp && !r.NextStart.After(time.Now())
}
