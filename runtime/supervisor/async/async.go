// Package async runs calls on other goroutines and passes on their panics.
package async

import (
	"fmt"
	"runtime/debug"
)

// Result is the result of a call on another goroutine.
type Result[T any] struct {
	v     T
	err   error
	panic any
}

// Get returns the result of the call. It panics if the call panicked.
func (r Result[T]) Get() (T, error) {
	r.MustNotPanic()
	return r.v, r.err
}

// MustNotPanic panics if the call panicked.
func (r Result[T]) MustNotPanic() {
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

// StackOf returns the stack of a recovered panic.
func StackOf(v any) []byte {
	if p, ok := v.(panicked); ok {
		return p.stack
	}
	return debug.Stack()
}

// Call runs fn on a new goroutine and passes on a panic. The slot recovers it, so that
// it does not crash the whole program.
func Call[T any](fn func() (T, error)) <-chan Result[T] {
	out := make(chan Result[T], 1)
	go func() {
		var r Result[T]
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
