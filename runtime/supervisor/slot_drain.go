package supervisor

import (
	"context"
	"time"
)

// drainLook is how often a slot looks whether requests are under way.
const drainLook = 20 * time.Millisecond

// Retire is Stop for a slot that others stand in for: requests that are under way
// may end before its instance is told to. Stop cuts that short.
func (s *Slot) Retire() {
	s.drainOnStop.Store(true)
	s.requestStop()
}

// RestartGently is Restart for one slot among others that serve meanwhile: requests
// that are under way may end before its instance is told to.
func (s *Slot) RestartGently() {
	s.drainOnRestart.Store(true)
	post(s.restart)
}

// mustDrain tells whether requests that are under way may end before the instance. A
// stop that leaves nobody to serve does not wait for them.
func (s *Slot) mustDrain() bool {
	return s.drainOnStop.Load() || s.drainOnRestart.Load() && !s.stopping()
}

// drainRequests waits until no request is under way at an instance that others stand in for,
// which no route leads to any more. It returns false when the daemon leaves.
func (s *Slot) drainRequests(ctx context.Context, in *Instance) bool {
	if s.sup.c.Busy == nil {
		return true
	}
	limit := time.Now().Add(s.sup.policy.DrainLimit)
	t := time.NewTicker(drainLook)
	defer t.Stop()
	// A request that was on its way when the route was withdrawn may be seen only at
	// the second look.
	for idle := 0; s.mustDrain() && len(in.alive()) > 0 && idle < 2 && time.Now().Before(limit); {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-in.container.Exits():
			for _, e := range s.noteExit(in, e, ok) {
				s.followed(ctx, in, e)
			}
		case <-t.C:
			idle++
			if s.sup.c.Busy(in.spec.Instance) {
				idle = 0
			}
		}
	}
	return true
}
