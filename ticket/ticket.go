// Package ticket stores secrets that expire, such as the codes of one-time links. It
// keeps them in memory and as hashes, so a restart of the daemon invalidates them.
package ticket

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

// secretBytes is the size of a secret: 256 bits.
const secretBytes = 32

// Secret returns a new random secret of 256 bits, which needs no escaping in a URL.
func Secret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails: see its documentation
	return base64.RawURLEncoding.EncodeToString(b)
}

// Store holds tickets: a value for each secret. It is safe for concurrent use.
type Store[T any] struct {
	limit int

	mu      sync.Mutex                     // guards the field below
	tickets map[[sha256.Size]byte]entry[T] // by the hash of the secret
}

type entry[T any] struct {
	value   T
	owner   string
	expires time.Time
}

// New returns a store with at most limit tickets of one owner. A new ticket above the
// limit replaces the owner's oldest one.
func New[T any](limit int) *Store[T] {
	return &Store[T]{limit: limit, tickets: map[[sha256.Size]byte]entry[T]{}}
}

// Issue stores a value for an owner and returns its secret.
func (s *Store[T]) Issue(owner string, value T, lifetime time.Duration) string {
	secret, now := Secret(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var own int
	var oldest [sha256.Size]byte
	var first time.Time
	for key, e := range s.tickets {
		if !now.Before(e.expires) {
			delete(s.tickets, key)
			continue
		}
		if e.owner != owner {
			continue
		}
		own++
		if first.IsZero() || e.expires.Before(first) {
			oldest, first = key, e.expires
		}
	}
	if own >= s.limit {
		delete(s.tickets, oldest)
	}
	s.tickets[sha256.Sum256([]byte(secret))] = entry[T]{value: value, owner: owner, expires: now.Add(lifetime)}
	return secret
}

// Get returns the value of a secret. The lookup by hash reveals nothing through its
// duration.
func (s *Store[T]) Get(secret string) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.tickets[sha256.Sum256([]byte(secret))]
	if !ok || !time.Now().Before(e.expires) {
		var none T
		return none, false
	}
	return e.value, true
}

// Take returns the value of a secret, which is then no longer valid.
func (s *Store[T]) Take(secret string) (T, bool) {
	key := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	e, ok := s.tickets[key]
	delete(s.tickets, key)
	s.mu.Unlock()
	if !ok || !time.Now().Before(e.expires) {
		var none T
		return none, false
	}
	return e.value, true
}
