package next

import (
	"context"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
)

// A spare is created after the start, so that it does not slow the start down. If another
// slot of the app has one, the slot tries again later.
const (
	FirstSpare = time.Second
	NextSpare  = 10 * time.Second
)

// spares limits the instances that are prepared while the ones before them run: one for
// each app, and a number for all.
type spares struct {
	limit int

	mu   sync.Mutex
	apps map[string]bool // that have one, guarded by mu
}

// SpareDue returns a channel for the time of the next call of Spare. It is nil without
// spares.
func (m *Maker) SpareDue(after time.Duration) <-chan time.Time {
	if m.spares.limit == 0 {
		return nil
	}
	return time.After(after)
}

// Spare prepares the next instance of a slot whose instance runs. It returns nil if the
// app cannot have one now.
func (m *Maker) Spare(ctx context.Context, slot runtime.SlotID, app string) *Instance {
	if !m.spares.take(app) {
		return nil
	}
	n := m.Prepare(ctx, slot)
	if n == nil {
		m.spares.release(app)
		return nil
	}
	n.release = func() { m.spares.release(app) }
	return n
}

// Spares returns the number of spares.
func (m *Maker) Spares() int {
	m.spares.mu.Lock()
	defer m.spares.mu.Unlock()
	return len(m.spares.apps)
}

// unlist ends the count of the instance as a spare.
func (n *Instance) unlist() {
	if n.release != nil {
		n.release()
	}
}

func (s *spares) take(app string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.apps[app] || len(s.apps) >= s.limit {
		return false
	}
	s.apps[app] = true
	return true
}

func (s *spares) release(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.apps, app)
}
