package platform

import (
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
)

// Error says why something cannot be done, in the words that clients know.
type Error struct {
	NotFound bool // what the request names does not exist; otherwise it cannot be done as it is
	Detail   string
}

func (e *Error) Error() string { return e.Detail }

// Refuse says why a request cannot be carried out as it is.
func Refuse(format string, args ...any) *Error { return &Error{Detail: fmt.Sprintf(format, args...)} }

func notFound(noun string) *Error { return &Error{NotFound: true, Detail: noun + " not found"} }

// missing turns "not found" of the packages below into an Error about the noun. Other
// errors stay as they are.
func missing(noun string, err error) error {
	if IsNotFound(err) {
		return notFound(noun)
	}
	return err
}

// IsNotFound tells whether err says that something does not exist, or is hidden.
func IsNotFound(err error) bool {
	return errors.Is(err, app.ErrNotFound) || errors.Is(err, droplet.ErrNotFound) || errors.Is(err, auth.ErrNotFound) // those of services are app's
}

func isA[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}
