package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/store"
)

const (
	refreshValidity = 30 * 24 * time.Hour
	maxSessions     = 100 // per user
	sweepEvery      = time.Hour
)

// session is a login that can be renewed. Only the hash of its refresh token is stored.
type session struct {
	ID        string // hash of the refresh token
	User      string
	Client    string
	Scopes    []string
	Grant     string
	Signature string // signature of the user at login
	CreatedAt time.Time
	Expires   time.Time
}

// startSession stores a new session and returns it with its refresh token. It deletes
// the user's oldest sessions beyond the limit.
func (a *Accounts) startSession(s session) (session, string, error) {
	token := rand.Text() + rand.Text() + "-r"
	s.ID = sessionID(token)
	s.CreatedAt = now()
	err := a.update(func(a *Accounts) error {
		all, err := a.sessions.By("user", s.User)
		if err != nil {
			return err
		}
		slices.SortFunc(all, func(x, y session) int { return x.CreatedAt.Compare(y.CreatedAt) })
		for i, old := range all {
			if i <= len(all)-maxSessions || !old.Expires.After(s.CreatedAt) {
				if err := a.sessions.Delete(old.ID); err != nil {
					return err
				}
			}
		}
		return a.sessions.Put(s.ID, s)
	})
	if err != nil {
		return s, "", fmt.Errorf("cannot store the session: %w", err)
	}
	return s, token, nil
}

// resumeSession returns the session of a refresh token, if it has not expired.
func (a *Accounts) resumeSession(token string) (session, error) {
	s, err := a.sessions.Get(sessionID(token))
	if errors.Is(err, store.ErrNotFound) {
		return s, ErrRevoked
	}
	if err != nil {
		return s, fmt.Errorf("cannot read a session: %w", err)
	}
	if !s.Expires.After(now()) {
		return s, ErrExpired
	}
	return s, nil
}

// deleteSessions deletes every session of a user or of a client.
func (a *Accounts) deleteSessions(index, value string) error {
	all, err := a.sessions.By(index, value)
	if err != nil {
		return fmt.Errorf("cannot delete the sessions of %s %s: %w", index, value, err)
	}
	for _, s := range all {
		if err := a.sessions.Delete(s.ID); err != nil {
			return fmt.Errorf("cannot delete the sessions of %s %s: %w", index, value, err)
		}
	}
	return nil
}

func sessionID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:16])
}

// revocation says that a token is revoked. It is stored until the token expires.
type revocation struct {
	JTI     string
	Expires time.Time
}

// revoke revokes a token and the session that it came from.
func (s *tokens) revoke(r revocation, session string) error {
	return s.cfg.DB.Update(func(tx *store.Tx) error {
		if err := s.revoked.With(tx).Put(r.JTI, r); err != nil {
			return fmt.Errorf("cannot revoke a token: %w", err)
		}
		if session == "" {
			return nil
		}
		if err := s.accounts.sessions.With(tx).Delete(session); err != nil {
			return fmt.Errorf("cannot delete a session: %w", err)
		}
		return nil
	})
}

// sweep deletes expired sessions and revocations, once in a while.
func (s *tokens) sweep() error {
	s.mu.Lock()
	at := time.Now()
	due := at.Sub(s.lastSweep) >= sweepEvery
	if due {
		s.lastSweep = at
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	return s.cfg.DB.Update(func(tx *store.Tx) error {
		sessions, revoked := s.accounts.sessions.With(tx), s.revoked.With(tx)
		return errors.Join(
			drop(sessions, func(v session) (string, bool) { return v.ID, v.Expires.After(at) }),
			drop(revoked, func(v revocation) (string, bool) { return v.JTI, v.Expires.After(at) }))
	})
}

// drop deletes the values for which keep returns false.
func drop[T any](b store.Bucket[T], keep func(v T) (key string, ok bool)) error {
	all, err := b.All()
	if err != nil {
		return fmt.Errorf("cannot list sessions or revoked tokens: %w", err)
	}
	for _, v := range all {
		key, ok := keep(v)
		if ok {
			continue
		}
		if err := b.Delete(key); err != nil {
			return fmt.Errorf("cannot delete an expired session or revoked token: %w", err)
		}
	}
	return nil
}
