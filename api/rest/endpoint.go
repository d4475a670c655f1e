// Package rest has the common parts of all API endpoints. These are the table row that
// describes each endpoint, list queries, paging, bodies, links, errors, and the OpenAPI
// description.
package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/api/access"
)

// Endpoint is one row of the API: the request, the permission that the caller needs,
// the query, body and responses, and the handler.
type Endpoint struct {
	Pattern  string          // in the syntax of http.ServeMux, with the method
	Needs    access.Need     // permission that the caller must have
	Resource access.Resource // resource that {guid} in the path names; zero if the need does not depend on one
	Shape    Shape           // the query, the body and the responses
	Handler  Handler
	Raw      http.Handler // serves the request instead of Handler if the response is not a value, such as a stream

	Local  bool   // served only on the daemon's socket
	Scope  string // a scope of tokens that is sufficient for this endpoint alone; empty: none
	Open   bool   // without a token it shows public data, unless a feature flag hides it
	Hidden bool   // for callers without the need it does not exist
}

// Check reports missing parts of a row.
func (e Endpoint) Check() error {
	var errs []error
	if e.Needs == 0 {
		errs = append(errs, errors.New("does not name the permission that the caller needs"))
	}
	if (e.Handler == nil) == (e.Raw == nil) {
		errs = append(errs, errors.New("must have one handler"))
	}
	if len(e.Shape.Responses) == 0 {
		errs = append(errs, errors.New("does not describe its responses"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("endpoint %q: %w", e.Pattern, errors.Join(errs...))
	}
	return nil
}

type shapeKey struct{}

// WithShape returns a context that passes the shape of an endpoint to its handler.
func WithShape(ctx context.Context, shape Shape) context.Context {
	return context.WithValue(ctx, shapeKey{}, shape)
}

// shapeOf returns the shape of the endpoint that a request is for.
func shapeOf(ctx context.Context) Shape {
	shape, _ := ctx.Value(shapeKey{}).(Shape)
	return shape
}
