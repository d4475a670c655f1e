// Package rest is what all endpoints of the API share: a row that describes each of them,
// the query of lists, paging, bodies, links, errors, and the OpenAPI description.
package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/api/access"
)

// Endpoint is one row of the API: the request it answers, what the caller needs,
// what it reads and returns, and who answers.
type Endpoint struct {
	Pattern  string          // as http.ServeMux reads it, with the method
	Needs    access.Need     // what the caller must be allowed to do
	Resource access.Resource // what {guid} in the path names; zero: the need is the same everywhere
	Shape    Shape           // the query, the body and the responses
	Handler  Handler
	Raw      http.Handler // answers instead of Handler where the response is no value, such as a stream

	Local  bool // answered on the socket of the daemon only
	Open   bool // without a token it shows what is public, unless a feature flag hides it
	Hidden bool // to callers without the need it does not exist
}

// Check tells what a row lacks.
func (e Endpoint) Check() error {
	var errs []error
	if e.Needs == 0 {
		errs = append(errs, errors.New("does not say what the caller needs"))
	}
	if (e.Handler == nil) == (e.Raw == nil) {
		errs = append(errs, errors.New("must have one handler"))
	}
	if len(e.Shape.Gives) == 0 {
		errs = append(errs, errors.New("does not say what it returns"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("endpoint %q: %w", e.Pattern, errors.Join(errs...))
	}
	return nil
}

type shapeKey struct{}

// WithShape hands the shape of an endpoint to its handler.
func WithShape(ctx context.Context, shape Shape) context.Context {
	return context.WithValue(ctx, shapeKey{}, shape)
}

// shapeOf is the shape of the endpoint that a request is for.
func shapeOf(ctx context.Context) Shape {
	shape, _ := ctx.Value(shapeKey{}).(Shape)
	return shape
}
