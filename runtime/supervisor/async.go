package supervisor

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
)

// result is what a call on another goroutine gave.
type result[T any] struct {
	v     T
	err   error
	panic any
}

// get returns what the call returned, and panics as it panicked.
func (r result[T]) get() (T, error) {
	r.mustNotPanic()
	return r.v, r.err
}

func (r result[T]) mustNotPanic() {
	if r.panic != nil {
		panic(r.panic)
	}
}

// panicked carries the stack of the goroutine that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) String() string { return fmt.Sprint(p.value) }

func stackOf(v any) []byte {
	if p, ok := v.(panicked); ok {
		return p.stack
	}
	return debug.Stack()
}

// async runs fn on a goroutine of its own and hands its panic over, too: it
// belongs to the slot's border, not to the whole program.
func async[T any](fn func() (T, error)) <-chan result[T] {
	out := make(chan result[T], 1)
	go func() {
		var r result[T]
		defer func() {
			if v := recover(); v != nil {
				r.panic = panicked{value: v, stack: debug.Stack()}
			}
			out <- r
		}()
		r.v, r.err = fn()
	}()
	return out
}

// guidSet collects guids until its reader takes them all. Adding one never waits.
type guidSet struct {
	wake chan struct{} // holds one: there is something to take

	mu    *sync.Mutex
	guids map[string]bool // guarded by mu
}

func newGUIDSet() guidSet {
	return guidSet{wake: make(chan struct{}, 1), mu: new(sync.Mutex), guids: map[string]bool{}}
}

func (s guidSet) add(guid string) {
	s.mu.Lock()
	s.guids[guid] = true
	s.mu.Unlock()
	post(s.wake)
}

// take empties the set and returns what was in it, sorted.
func (s guidSet) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Sorted(maps.Keys(s.guids))
	clear(s.guids)
	return out
}
