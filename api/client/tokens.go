package client

import "context"

// Tokens are what requests to the listener are signed with. Its methods may be
// called at the same time.
type Tokens interface {
	// Token gives a token for the next request; an empty one signs nothing.
	Token(ctx context.Context) (string, error)
	// Renew gives another one for a token that was refused. The same one means
	// that there is no other.
	Renew(ctx context.Context, refused string) (string, error)
}

// Fixed is a token that is never renewed.
type Fixed string

// Token gives the token.
func (f Fixed) Token(context.Context) (string, error) { return string(f), nil }

// Renew gives the same token.
func (f Fixed) Renew(context.Context, string) (string, error) { return string(f), nil }
