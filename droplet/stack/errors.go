package stack

import "errors"

// What a caller may decide on.
var (
	ErrNotFound = errors.New("not found")
	ErrNoImage  = errors.New("image is not on the shelf")
)
