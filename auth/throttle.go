package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	lockAfter   = 5 // failures within lockWindow
	lockWindow  = 5 * time.Minute
	firstDelay  = 100 * time.Millisecond
	maxDelay    = 2 * time.Second
	maxQueue    = 10 * time.Second
	maxWatched  = 10000 // pairs of name and peer
	maxChecking = 4     // concurrent password checks: each uses a CPU core for a while
)

// Errors of a login that is refused before the password is checked.
var (
	errLocked  = errors.New("too many failed login attempts")
	errTooMany = errors.New("too many login attempts at the same time")
)

// throttle slows down password guessing. Every failure makes the next attempt on the
// same name from the same peer wait longer, one after the other. After lockAfter
// failures in lockWindow all attempts are refused. Administrators are slowed down but
// never locked out, because no one else could unlock them.
type throttle struct {
	checking chan struct{} // a slot is held while a password is compared

	mu      sync.Mutex
	watched map[[sha256.Size]byte]*watched // guarded by mu
}

// watched holds the failures of one name from one peer.
type watched struct {
	failures []time.Time // the last ones, oldest first
	next     time.Time   // time of the next allowed attempt
}

func newThrottle() *throttle {
	return &throttle{checking: make(chan struct{}, maxChecking), watched: map[[sha256.Size]byte]*watched{}}
}

// attempt is one login attempt on a name from a peer.
type attempt struct {
	name, peer string
	lockable   bool
}

// key is short even for a long name, because many keys are stored.
func (a attempt) key() [sha256.Size]byte {
	return sha256.Sum256([]byte(fold(a.name) + "\x00" + a.peer))
}

// try runs check when it is this attempt's turn. An ErrBadPassword from check counts as
// a failure. Success clears the failures.
func (t *throttle) try(ctx context.Context, a attempt, check func() error) error {
	for {
		wait, err := t.reserve(a)
		if err != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		select {
		case t.checking <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		// An attempt that came before the first failure and waited only for a core
		// takes a turn if there has been a failure since. So a thousand guesses at the
		// same time are no faster than one after the other.
		if wait > 0 || !t.waiting(a) {
			break
		}
		<-t.checking
	}
	defer func() { <-t.checking }()
	if t.locked(a) {
		return errLocked
	}
	err := check()
	t.recordResult(a, err)
	return err
}

func pause(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve returns how long to wait, and makes the next attempt wait longer.
func (t *throttle) reserve(a attempt) (time.Duration, error) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watched[a.key()]
	if w == nil {
		return 0, nil
	}
	w.dropOld(at)
	if a.lockable && len(w.failures) >= lockAfter {
		return 0, errLocked
	}
	wait := max(w.next.Sub(at), 0)
	if wait > maxQueue {
		return 0, fmt.Errorf("%w: try again in %s", errTooMany, wait.Round(time.Second))
	}
	if wait > 0 {
		w.next = at.Add(wait + delay(len(w.failures)))
	}
	return wait, nil
}

// waiting reports whether an attempt that came now would have to wait.
func (t *throttle) waiting(a attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watched[a.key()]
	return w != nil && w.next.After(time.Now())
}

func (t *throttle) locked(a attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watched[a.key()]
	return a.lockable && w != nil && len(w.failures) >= lockAfter
}

func (t *throttle) recordResult(a attempt, err error) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.watched, a.key())
		return
	}
	if !errors.Is(err, ErrBadPassword) {
		return
	}
	w := t.watched[a.key()]
	if w == nil {
		t.evict(at)
		w = &watched{}
		t.watched[a.key()] = w
	}
	w.dropOld(at)
	w.failures = append(w.failures, at)
	if len(w.failures) > lockAfter {
		w.failures = w.failures[len(w.failures)-lockAfter:]
	}
	if next := at.Add(delay(len(w.failures))); next.After(w.next) {
		w.next = next
	}
}

// evict limits the number of pairs, because an attacker can invent any number of names.
func (t *throttle) evict(at time.Time) {
	if len(t.watched) < maxWatched {
		return
	}
	for k, w := range t.watched {
		if w.dropOld(at); len(w.failures) == 0 {
			delete(t.watched, k)
		}
	}
	for k := range t.watched { // any entry: better than to grow without limit, or to stop watching
		if len(t.watched) < maxWatched {
			return
		}
		delete(t.watched, k)
	}
}

// dropOld drops failures that are too old to count.
func (w *watched) dropOld(at time.Time) {
	for len(w.failures) > 0 && at.Sub(w.failures[0]) >= lockWindow {
		w.failures = w.failures[1:]
	}
}

// delay is how long the attempt after n failures waits.
func delay(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return min(firstDelay<<min(n-1, 10), maxDelay)
}
