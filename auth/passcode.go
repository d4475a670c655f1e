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
	maxCodes     = 100   // of one principal, in one codeStore
	maxAllCodes  = 10000 // of all principals, in one codeStore
)

// codeStore stores one-time codes. They are valid for minutes and only in memory, so a
// restart of the daemon invalidates them.
type codeStore struct {
	mu    sync.Mutex
	codes map[[sha256.Size]byte]issuedCode // guarded by mu
}

type issuedCode struct {
	p       Principal
	expires time.Time
}

func newCodeStore() *codeStore { return &codeStore{codes: map[[sha256.Size]byte]issuedCode{}} }

// put returns a new code for p. If p has too many, it drops p's oldest one. A box that
// is full of codes of other principals refuses new codes.
func (b *codeStore) put(p Principal) (string, error) {
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
		return "", fmt.Errorf("cannot create a one-time code: %d unused codes exist, which is the limit; try again in a few minutes", maxAllCodes)
	}
	b.codes[sha256.Sum256([]byte(code))] = issuedCode{p: p, expires: at.Add(codeValidity)}
	return code, nil
}

// redeem redeems a code. The lookup by hash reveals nothing through its duration.
func (b *codeStore) redeem(code string) (Principal, error) {
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

// Code returns a code that authenticates p to the ssh proxy, once, within five minutes.
func (s *tokens) Code(p Principal) (string, error) { return s.codes.put(p) }

// Redeem uses up a code and returns its principal with the present permissions. It
// returns ErrBadCode for a wrong, used or expired code. It does the same if the owner
// was deleted or has logged out since.
func (s *tokens) Redeem(code string) (Principal, error) {
	p, err := s.codes.redeem(code)
	if err != nil {
		return Principal{}, err
	}
	return s.recheck(p)
}

// Current returns an authenticated principal in its present state, without the scopes
// that it has lost. It returns an error if the account was deleted or has logged out
// since.
func (s *tokens) Current(p Principal) (Principal, error) { return s.recheck(p) }

// recheck checks the account of a principal again.
func (s *tokens) recheck(p Principal) (Principal, error) {
	if p.sig == "" { // the listener authenticated p, so there is no account
		return p, nil
	}
	fresh, err := s.current(p)
	if errors.Is(err, ErrRevoked) {
		return Principal{}, fmt.Errorf("%w: %w", ErrBadCode, err)
	}
	return fresh, err
}
