package client

import "context"

// Tokens authenticate requests to the listener. Its methods are safe for concurrent
// use.
type Tokens interface {
	// Token returns a token for the next request. An empty one means no authentication.
	Token(ctx context.Context) (string, error)
	// Renew returns another token in place of a refused one. If it returns the same
	// token, there is no other.
	Renew(ctx context.Context, refused string) (string, error)
}

// Fixed is a token that is never renewed.
type Fixed string

// Token returns the token.
func (f Fixed) Token(context.Context) (string, error) { return string(f), nil }

// Renew returns the same token.
func (f Fixed) Renew(context.Context, string) (string, error) { return string(f), nil }
