package health

import "errors"

// Unchecked is a probe's answer that it could not check: nothing is known about the
// app. It is neither a failure nor a success.
type Unchecked struct {
	Check  string // CheckPort or CheckHTTP
	Reason string // "the instance is paused until its output is stored"
	Err    error  // what lies behind it
}

func (u *Unchecked) Error() string { return "cannot run the " + u.Check + " check: " + u.Reason }

// Unwrap gives what lies behind it.
func (u *Unchecked) Unwrap() error { return u.Err }

func unchecked(err error) bool {
	_, ok := errors.AsType[*Unchecked](err)
	return ok
}
