// Package auth knows who is who and may do what: it is the OAuth 2.0 server at
// /uaa, and it keeps users, clients, roles, tokens and one-time codes.
//
//	name + password ─┐
//	passcode ────────┼─▶ grant ─▶ Token (signed, minutes) ─▶ Verify ─▶ Principal
//	client + secret ─┤     │                                    ▲
//	refresh token ───┘     └─▶ session (stored as a hash, days)  │
//	                                       keys, accounts, revocations on disk
//	Principal ─▶ Code ─▶ (5 minutes, once) ─▶ Redeem ─▶ Principal
//
// A token is only a claim: Verify also asks whether its user and client are still
// there, as they were when it was given, so that a deleted user, a changed
// password or a right taken away act at once.
package auth

import "errors"

// What a caller may decide on.
var (
	ErrNotFound     = errors.New("not found")
	ErrTaken        = errors.New("already taken")
	ErrInvalidToken = errors.New("invalid token")
	ErrExpired      = errors.New("token has expired")
	ErrRevoked      = errors.New("token was revoked")
	ErrBadCode      = errors.New("code is wrong, used or too old")
	ErrBadPassword  = errors.New("name or password is wrong")
)

// Invalid says which part of an account or a role is wrong, and how.
type Invalid struct {
	Key     string // "password"
	Message string
}

func (e *Invalid) Error() string { return e.Key + ": " + e.Message }
