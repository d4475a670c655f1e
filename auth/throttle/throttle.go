// Package throttle slows down the guessing of passwords.
package throttle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A name is locked after LockAfter failures within LockWindow.
const (
	LockAfter   = 5 // failures within LockWindow
	LockWindow  = 5 * time.Minute
	firstDelay  = 100 * time.Millisecond
	maxDelay    = 2 * time.Second
	maxQueue    = 10 * time.Second
	maxWatched  = 10000 // pairs of name and peer
	maxChecking = 4     // concurrent password checks: each uses a CPU core for a while
)

// Errors of a login. The last one is that of a wrong password; the others refuse an
// attempt before the password is checked.
var (
	ErrLocked  = errors.New("too many failed login attempts")
	ErrTooMany = errors.New("too many login attempts at the same time")
	ErrWrong   = errors.New("name or password is wrong")
)

// Throttle slows down password guessing. Every failure makes the next attempt on the
// same name from the same peer wait longer, one after the other. After LockAfter
// failures in LockWindow all attempts are refused. Administrators are slowed down but
// never locked out, because no one else could unlock them.
type Throttle struct {
	checking chan struct{} // a slot is held while a password is compared

	mu      sync.Mutex
	watched map[[sha256.Size]byte]*watched // guarded by mu
}

// watched holds the failures of one name from one peer.
type watched struct {
	failures []time.Time // the last ones, oldest first
	next     time.Time   // time of the next allowed attempt
}

// New returns a Throttle without failures.
func New() *Throttle {
	return &Throttle{checking: make(chan struct{}, maxChecking), watched: map[[sha256.Size]byte]*watched{}}
}

// Attempt is one login attempt on a name from a peer.
type Attempt struct {
	Name, Peer string
	Lockable   bool
}

// key is short even for a long name, because many keys are stored.
func (a Attempt) key() [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.ToLower(a.Name) + "\x00" + a.Peer))
}

// Try runs check when it is this attempt's turn. An ErrWrong from check counts as
// a failure. Success clears the failures.
func (t *Throttle) Try(ctx context.Context, a Attempt, check func() error) error {
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
		return ErrLocked
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
func (t *Throttle) reserve(a Attempt) (time.Duration, error) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watched[a.key()]
	if w == nil {
		return 0, nil
	}
	w.dropOld(at)
	if a.Lockable && len(w.failures) >= LockAfter {
		return 0, ErrLocked
	}
	wait := max(w.next.Sub(at), 0)
	if wait > maxQueue {
		return 0, fmt.Errorf("%w: try again in %s", ErrTooMany, wait.Round(time.Second))
	}
	if wait > 0 {
		w.next = at.Add(wait + delay(len(w.failures)))
	}
	return wait, nil
}

// waiting reports whether an attempt that came now would have to wait.
func (t *Throttle) waiting(a Attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watched[a.key()]
	return w != nil && w.next.After(time.Now())
}

func (t *Throttle) locked(a Attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watched[a.key()]
	return a.Lockable && w != nil && len(w.failures) >= LockAfter
}

func (t *Throttle) recordResult(a Attempt, err error) {
	at := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.watched, a.key())
		return
	}
	if !errors.Is(err, ErrWrong) {
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
	if len(w.failures) > LockAfter {
		w.failures = w.failures[len(w.failures)-LockAfter:]
	}
	if next := at.Add(delay(len(w.failures))); next.After(w.next) {
		w.next = next
	}
}

// evict limits the number of pairs, because an attacker can invent any number of names.
func (t *Throttle) evict(at time.Time) {
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
	for len(w.failures) > 0 && at.Sub(w.failures[0]) >= LockWindow {
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
