// Package auth authenticates users and clients and stores their permissions. It is the
// OAuth 2.0 server at /uaa, and it stores users, clients, roles, tokens and one-time
// codes.
//
//	name + password ─┐
//	passcode ────────┼─▶ grant ─▶ Token (signed, minutes) ─▶ Verify ─▶ Principal
//	client + secret ─┤     │                                    ▲
//	refresh token ───┘     └─▶ session (stored as a hash, days)  │
//	                                       keys, accounts, revocations on disk
//	Principal ─▶ Code ─▶ (5 minutes, once) ─▶ Redeem ─▶ Principal
//
// A token alone is not proof. Verify also checks that its user and client still exist
// in the state in which the token was issued. So a deleted user, a changed password or
// a revoked permission takes effect at once.
package auth

import (
	"errors"

	"github.com/dewrun/dew/auth/throttle"
)

// Errors that callers can check for.
var (
	ErrNotFound     = errors.New("not found")
	ErrTaken        = errors.New("already in use")
	ErrInvalidToken = errors.New("invalid token")
	ErrExpired      = errors.New("token has expired")
	ErrRevoked      = errors.New("token was revoked")
	ErrBadCode      = errors.New("code is wrong, already used or expired")
	ErrBadPassword  = throttle.ErrWrong
)

// Invalid says which part of an account or a role is wrong, and why.
type Invalid struct {
	Key     string // such as "password"
	Message string
}

func (e *Invalid) Error() string { return e.Key + ": " + e.Message }
