package supervisor

import (
	"cmp"
	"slices"
	"sync"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// slotSet has the slots of all processes until they are down.
type slotSet struct {
	mu           sync.Mutex // guards the fields below
	slots        map[runtime.SlotID]*Slot
	shuttingDown bool // no slot can start any more
}

// close refuses all further slots.
func (s *slotSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuttingDown = true
}

// remove removes a slot that is down.
func (s *slotSet) remove(sl *Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[sl.id] == sl {
		delete(s.slots, sl.id)
	}
}

// add adds a slot. It returns false if the id is in use by a slot that is stopping, or
// by an instance that is not taken over yet. The process is synced again when the id is
// free.
func (s *slotSet) add(sl *Slot, held *unadoptedSet) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[sl.id] != nil || s.shuttingDown || held.holds(sl.id) {
		return false
	}
	s.slots[sl.id] = sl
	return true
}

// of returns the slots of a process, sorted by generation and index. If the guid names
// a generation, it returns only the slots of that one.
func (s *slotSet) of(guid string) []*Slot {
	process, generation, one := app.SplitGeneration(guid)
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Slot
	for id, sl := range s.slots {
		if id.Process == process && (!one || id.Generation == generation) {
			out = append(out, sl)
		}
	}
	slices.SortFunc(out, func(a, b *Slot) int {
		return cmp.Or(cmp.Compare(a.id.Generation, b.id.Generation), cmp.Compare(a.id.Index, b.id.Index))
	})
	return out
}

// at returns the slots of a process with that index, the current one first. A replaced
// slot remains in the set until it is down.
func (s *slotSet) at(process string, index int) []*Slot {
	all := slices.DeleteFunc(s.of(process), func(sl *Slot) bool { return sl.id.Index != index })
	slices.SortStableFunc(all, func(a, b *Slot) int { return cmp.Compare(stopOrder(a), stopOrder(b)) })
	return all
}

// stopOrder returns 1 for a slot that was told to stop.
func stopOrder(sl *Slot) int {
	if sl.stopping() {
		return 1
	}
	return 0
}

func (s *slotSet) containerAt(process string, index int) (runtime.Container, error) {
	for _, sl := range s.at(process, index) {
		if c := sl.currentContainer(); c != nil {
			return c, nil
		}
	}
	return nil, runtime.NotRunning(index)
}

// all returns all current slots.
func (s *slotSet) all() []*Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Slot, 0, len(s.slots))
	for _, sl := range s.slots {
		out = append(out, sl)
	}
	return out
}

// Running returns the containers of the instances of apps that are running.
func (s *slotSet) Running() []runtime.Container {
	var out []runtime.Container
	for _, sl := range s.all() {
		c := sl.currentContainer()
		if c != nil && sl.snapshot().State == runtime.Running && c.Spec().Kind == runtime.KindInstance {
			out = append(out, c)
		}
	}
	return out
}
