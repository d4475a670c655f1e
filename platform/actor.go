package platform

import (
	"context"

	"github.com/dewrun/dew/app"
)

// actorKey is the context key for the user on whose behalf a change is made.
type actorKey struct{}

// ActingFor returns a context in which changes are made on behalf of by.
func ActingFor(ctx context.Context, by app.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, by)
}

// ActorOf returns the user on whose behalf a change is made, for audit events.
func ActorOf(ctx context.Context) app.Actor {
	if by, ok := ctx.Value(actorKey{}).(app.Actor); ok && by.GUID != "" {
		return by
	}
	return app.Actor{GUID: "unknown", Type: "user", Name: "unknown"}
}
