package async

import (
	"maps"
	"slices"
	"sync"
)

// GUIDs collects guids until its reader takes them all. Adding a guid never blocks.
type GUIDs struct {
	Wake chan struct{} // buffer of 1: the set is not empty

	mu    *sync.Mutex
	guids map[string]bool // guarded by mu
}

// NewGUIDs returns an empty set.
func NewGUIDs() GUIDs {
	return GUIDs{Wake: make(chan struct{}, 1), mu: new(sync.Mutex), guids: map[string]bool{}}
}

// Add adds a guid and wakes the reader.
func (s GUIDs) Add(guid string) {
	s.mu.Lock()
	s.guids[guid] = true
	s.mu.Unlock()
	select {
	case s.Wake <- struct{}{}:
	default: // the reader is woken already
	}
}

// Take empties the set and returns its guids, sorted.
func (s GUIDs) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Sorted(maps.Keys(s.guids))
	clear(s.guids)
	return out
}
