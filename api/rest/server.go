package rest

import "context"

// MaxBody bounds every body but uploads, which have their own bound.
const MaxBody = 16 << 20

type RequestKey struct{}

func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(RequestKey{}).(string)
	return id
}
