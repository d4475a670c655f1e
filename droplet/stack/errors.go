package stack

import "errors"

// Errors that callers can check for.
var (
	ErrNotFound = errors.New("not found")
	ErrNoImage  = errors.New("image is not stored")
)
