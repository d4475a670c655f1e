package auth

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Five failures lock a name for a while, even a name that does not exist.
// Administrators are not locked, because they can unlock others.
func TestLockout(t *testing.T) {
	for name, tc := range map[string]struct {
		password string
		locks    bool
	}{
		"bob": {"secret", true}, "nobody": {"", true}, "admin": {adminPassword, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.user("bob", "secret")
				try := func(password string) answer {
					return w.form(cf, "grant_type", "password", "username", name, "password", password)
				}
				for range lockAfter {
					if a := try("wrong"); a.text("error_description") != "Bad credentials" {
						t.Errorf("failure: %s", a.raw)
					}
				}
				a := try(tc.password)
				if locked := a.text("error_description") == lockedText; locked != tc.locks {
					t.Errorf("locked = %t: %s", locked, a.raw)
				}
				if tc.locks {
					a.want(t, "locked", 401, "unauthorized")
				}
				time.Sleep(lockWindow)
				if a := try(tc.password); (a.code == 200) != (tc.password != "") {
					t.Errorf("afterwards: %d %s", a.code, a.raw)
				}
			})
		})
	}
}

// Failures make the next attempt wait, each time longer. Success resets the delay.
// Another peer or name does not wait.
func TestThrottleDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		took := func(a attempt, result error) time.Duration {
			start := time.Now()
			if err := th.try(t.Context(), a, func() error { return result }); !errors.Is(err, result) {
				t.Errorf("try = %v, want %v", err, result)
			}
			return time.Since(start)
		}
		bob := attempt{name: "bob", peer: "p1"}
		for i, want := range []time.Duration{0, firstDelay, 2 * firstDelay, 4 * firstDelay, 8 * firstDelay, 16 * firstDelay, 16 * firstDelay} {
			if got := took(bob, ErrBadPassword); got != want {
				t.Errorf("attempt %d waited for %v, want %v", i, got, want)
			}
		}
		if got := took(attempt{name: "bob", peer: "p2"}, nil); got != 0 {
			t.Errorf("another peer waited for %v", got)
		}
		took(bob, nil)
		if got := took(bob, ErrBadPassword); got != 0 {
			t.Errorf("after a success: %v", got)
		}
	})
}

// Concurrent guesses are no faster than sequential ones, and their queue is short.
func TestThrottleCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		var mu sync.Mutex
		results := map[string]int{}
		start := time.Now()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				err := th.try(t.Context(), attempt{name: "admin", peer: "p"}, func() error {
					time.Sleep(50 * time.Millisecond) // the duration of a hash
					return ErrBadPassword
				})
				mu.Lock()
				defer mu.Unlock()
				results[map[bool]string{true: "checked", false: "refused"}[errors.Is(err, ErrBadPassword)]]++
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
	th := newThrottle()
	for i := range maxWatched + 10 {
		th.recordResult(attempt{name: fmt.Sprint(i)}, ErrBadPassword)
	}
	if n := len(th.watched); n > maxWatched {
		t.Errorf("%d names are watched", n)
	}
}
