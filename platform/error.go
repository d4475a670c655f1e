package platform

import (
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
)

// Error is the reason why a request cannot be carried out, in the words of Cloud
// Foundry.
type Error struct {
	NotFound bool // a resource in the request does not exist; otherwise the request is not possible
	Detail   string
}

func (e *Error) Error() string { return e.Detail }

// Refuse returns the reason why a request cannot be carried out.
func Refuse(format string, args ...any) *Error { return &Error{Detail: fmt.Sprintf(format, args...)} }

func notFound(noun string) *Error { return &Error{NotFound: true, Detail: noun + " not found"} }

// missing turns "not found" errors of other packages into an Error that names the
// resource type. It returns other errors unchanged.
func missing(noun string, err error) error {
	if IsNotFound(err) {
		return notFound(noun)
	}
	return err
}

// IsNotFound reports whether err says that a resource does not exist, or is hidden.
func IsNotFound(err error) bool {
	return errors.Is(err, app.ErrNotFound) || errors.Is(err, droplet.ErrNotFound) || errors.Is(err, auth.ErrNotFound) // errors of services wrap app.ErrNotFound
}

func isA[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}
