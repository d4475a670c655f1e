package command

import (
	"errors"
	"net/http"
	"strings"

	"github.com/dewrun/dew/api/client"
)

// IsMissing reports whether err is about a name that does not exist.
func IsMissing(err error) bool {
	m := (*client.Missing)(nil)
	return errors.As(err, &m)
}

// NameTaken reports whether the daemon refused the name of an app because it is in use.
func NameTaken(e *client.Error) bool {
	return strings.Contains(e.Detail, "already exists") || strings.Contains(e.Detail, "name must be unique in space")
}

// AlreadyExists reports whether the daemon refused to create something that exists.
func AlreadyExists(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && (NameTaken(e) || strings.Contains(strings.ToLower(e.Detail), "must be unique"))
}

// ErrorContains reports whether err is an answer of the daemon that contains text.
func ErrorContains(err error, text string) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && strings.Contains(e.Error(), text)
}

// IsNotFound reports whether the daemon answered 404.
func IsNotFound(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// HiddenFromCaller reports whether the daemon does not show this resource to the user,
// or not at this address.
func HiddenFromCaller(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && (e.Status == http.StatusNotFound || e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized)
}
