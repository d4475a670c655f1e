package supervisor

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
)

// result is the result of a call on another goroutine.
type result[T any] struct {
	v     T
	err   error
	panic any
}

// get returns the result of the call. It panics if the call panicked.
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

// async runs fn on a new goroutine and passes on a panic. The slot recovers it, so that
// it does not crash the whole program.
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

// guidSet collects guids until its reader takes them all. Adding a guid never blocks.
type guidSet struct {
	wake chan struct{} // buffer of 1: the set is not empty

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

// take empties the set and returns its guids, sorted.
func (s guidSet) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Sorted(maps.Keys(s.guids))
	clear(s.guids)
	return out
}
