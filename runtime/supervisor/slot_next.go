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

// spareEvents are the next events about the spare of a slot. Without one, both are nil.
type spareEvents struct {
	due    <-chan time.Time // it can be prepared
	failed <-chan struct{}  // it does not exist any more
}

// prepareSpare creates the next instance while the current one runs.
func prepareSpare(ctx context.Context, s *Slot) spareEvents {
	if s.stray || s.next != nil || s.inst.spec.Kind != runtime.KindInstance {
		return spareEvents{}
	}
	s.next = s.sup.next.Spare(ctx, s.id, s.inst.spec.App)
	if s.next == nil || s.next.Err != nil {
		return replaceSpare(s, next.NextSpare)
	}
	return spareEvents{failed: s.next.Failed()}
}

// replaceSpare removes the spare, if there is one. The next one is due after a time.
func replaceSpare(s *Slot, after time.Duration) spareEvents {
	s.dropNext()
	return spareEvents{due: s.sup.next.SpareDue(after)}
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
