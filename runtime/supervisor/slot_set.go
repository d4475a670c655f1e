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
	shuttingDown bool // no slot begins any more
}

// close lets no slot enter any more.
func (s *slotSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuttingDown = true
}

// leave takes a slot out that is down.
func (s *slotSet) leave(sl *Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[sl.id] == sl {
		delete(s.slots, sl.id)
	}
}

// enter puts a slot into its place. It returns false when the place is taken: a
// slot that is still stopping, or an instance that could not be taken over yet, makes room by itself and is synced again then.
func (s *slotSet) enter(sl *Slot, held *unadoptedSet) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[sl.id] != nil || s.shuttingDown || held.holds(sl.id) {
		return false
	}
	s.slots[sl.id] = sl
	return true
}

// of are the slots of a process by generation and index; of one generation, where
// the guid names it.
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

// at are the slots of a process with that index, the one that somebody means first:
// what was replaced is there until it has ended.
func (s *slotSet) at(process string, index int) []*Slot {
	all := slices.DeleteFunc(s.of(process), func(sl *Slot) bool { return sl.id.Index != index })
	slices.SortStableFunc(all, func(a, b *Slot) int { return cmp.Compare(leaving(a), leaving(b)) })
	return all
}

// leaving is 1 for a slot that was told to stop.
func leaving(sl *Slot) int {
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
	return nil, notRunning(index)
}

// all are the slots as they are now.
func (s *slotSet) all() []*Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Slot, 0, len(s.slots))
	for _, sl := range s.slots {
		out = append(out, sl)
	}
	return out
}
