package throttle

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Failures make the next attempt wait, each time longer. Success resets the delay.
// Another peer or name does not wait.
func TestThrottleDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := New()
		took := func(a Attempt, result error) time.Duration {
			start := time.Now()
			if err := th.Try(t.Context(), a, func() error { return result }); !errors.Is(err, result) {
				t.Errorf("try = %v, want %v", err, result)
			}
			return time.Since(start)
		}
		bob := Attempt{Name: "bob", Peer: "p1"}
		for i, want := range []time.Duration{0, firstDelay, 2 * firstDelay, 4 * firstDelay, 8 * firstDelay, 16 * firstDelay, 16 * firstDelay} {
			if got := took(bob, ErrWrong); got != want {
				t.Errorf("attempt %d waited for %v, want %v", i, got, want)
			}
		}
		if got := took(Attempt{Name: "bob", Peer: "p2"}, nil); got != 0 {
			t.Errorf("another peer waited for %v", got)
		}
		took(bob, nil)
		if got := took(bob, ErrWrong); got != 0 {
			t.Errorf("after a success: %v", got)
		}
	})
}

// Concurrent guesses are no faster than sequential ones, and their queue is short.
func TestThrottleCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := New()
		var mu sync.Mutex
		results := map[string]int{}
		start := time.Now()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				err := th.Try(t.Context(), Attempt{Name: "admin", Peer: "p"}, func() error {
					time.Sleep(50 * time.Millisecond) // the duration of a hash
					return ErrWrong
				})
				mu.Lock()
				defer mu.Unlock()
				results[map[bool]string{true: "checked", false: "refused"}[errors.Is(err, ErrWrong)]]++
			})
		}
		wg.Wait()
		if took := time.Since(start); results["checked"] > maxChecking+int(took/firstDelay) || results["refused"] == 0 {
			t.Errorf("%v in %v", results, took)
		}
	})
}

func TestThrottleIsBounded(t *testing.T) {
	t.Parallel()
	th := New()
	for i := range maxWatched + 10 {
		th.recordResult(Attempt{Name: fmt.Sprint(i)}, ErrWrong)
	}
	if n := len(th.watched); n > maxWatched {
		t.Errorf("%d names are watched", n)
	}
}
