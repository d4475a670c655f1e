package rest

import (
	"context"
	"io"
	"net/http"
)

// Handler answers with a value for the body, an answer, or an error.
type Handler func(r *http.Request) (any, error)

// Answer is a response that is more than a body with status 200.
type Answer struct {
	Status   int
	Location string   // absolute
	Warnings []string // that clients show beside
	Body     any      // as JSON; nil: none

	// What no encoder makes has a type: raw, content where it is large, or produce.
	Raw         []byte
	Content     io.ReadCloser
	Size        int64                   // of content; 0: unknown
	Produce     func(w io.Writer) error // writes a large body piece by piece
	ContentType string
}

// MaxBody bounds every body but uploads, which have their own bound.
const MaxBody = 16 << 20

// RequestKey is the context key for the id of a request.
type RequestKey struct{}

// RequestID is the id of the request that ctx belongs to.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(RequestKey{}).(string)
	return id
}
