package rest

import (
	"context"
	"io"
	"net/http"
)

// Handler returns a value for the body, an Answer, or an error.
type Handler func(r *http.Request) (any, error)

// Answer is a response with more than a body and status 200.
type Answer struct {
	Status   int
	Location string   // absolute
	Warnings []string // clients show them to the user
	Body     any      // encoded as JSON, nil for none

	// A body that is not JSON has a content type. Set Raw, Content if it is large, or
	// Produce.
	Raw         []byte
	Content     io.ReadCloser
	Size        int64                   // size of Content, 0 for unknown
	Produce     func(w io.Writer) error // writes a large body in pieces
	ContentType string
}

// MaxBody limits the size of every body except uploads, which have their own limit.
const MaxBody = 16 << 20

// RequestKey is the context key for the id of a request.
type RequestKey struct{}

// RequestID is the id of the request that ctx belongs to.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(RequestKey{}).(string)
	return id
}
