package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	codeValidity = 5 * time.Minute
	maxCodes     = 100   // of one principal, in one box
	maxAllCodes  = 10000 // in one box
)

// codeBox keeps one-time codes. They live for minutes and only in memory: a
// restart of the daemon costs a new one.
type codeBox struct {
	mu    sync.Mutex
	codes map[[sha256.Size]byte]issued // guarded by mu
}

type issued struct {
	p       Principal
	expires time.Time
}

func newCodeBox() *codeBox { return &codeBox{codes: map[[sha256.Size]byte]issued{}} }

// put returns a new code for p. The oldest one of p makes room; a box that is full
// of others' codes takes no more.
func (b *codeBox) put(p Principal) (string, error) {
	code := rand.Text()
	at := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var own int
	var oldest [sha256.Size]byte
	var first time.Time
	for k, c := range b.codes {
		if !c.expires.After(at) {
			delete(b.codes, k)
			continue
		}
		if c.p.ID != p.ID || c.p.IsUser != p.IsUser {
			continue
		}
		own++
		if first.IsZero() || c.expires.Before(first) {
			oldest, first = k, c.expires
		}
	}
	if own >= maxCodes {
		delete(b.codes, oldest)
	}
	if len(b.codes) >= maxAllCodes {
		return "", fmt.Errorf("cannot make a code: %d are waiting to be used: try again in a few minutes", maxAllCodes)
	}
	b.codes[sha256.Sum256([]byte(code))] = issued{p: p, expires: at.Add(codeValidity)}
	return code, nil
}

// take uses a code up. Looking it up by its hash tells nothing by how long it takes.
func (b *codeBox) take(code string) (Principal, error) {
	key := sha256.Sum256([]byte(code))
	b.mu.Lock()
	c, ok := b.codes[key]
	delete(b.codes, key)
	b.mu.Unlock()
	if !ok || !c.expires.After(time.Now()) {
		return Principal{}, ErrBadCode
	}
	return c.p, nil
}

// Code returns a code that stands for p at the ssh door, once, for five minutes.
func (s *tokens) Code(p Principal) (string, error) { return s.codes.put(p) }

// Redeem uses a code up and returns who it stands for, as they are now. It returns
// ErrBadCode for a code that is wrong, used or too old, and for one whose owner
// has gone or logged out since.
func (s *tokens) Redeem(code string) (Principal, error) {
	p, err := s.codes.take(code)
	if err != nil {
		return Principal{}, err
	}
	return s.again(p)
}

// Current returns somebody who was let in as they are now: without the scopes that
// they have lost. It returns an error when they have gone or logged out since.
func (s *tokens) Current(p Principal) (Principal, error) { return s.again(p) }

// again looks at the account behind somebody once more.
func (s *tokens) again(p Principal) (Principal, error) {
	if p.sig == "" { // a door vouched for p: there is no account behind it
		return p, nil
	}
	fresh, err := s.current(p)
	if errors.Is(err, ErrRevoked) {
		return Principal{}, fmt.Errorf("%w: %w", ErrBadCode, err)
	}
	return fresh, err
}
