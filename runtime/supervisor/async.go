package supervisor

import (
	"fmt"
	"runtime/debug"
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
