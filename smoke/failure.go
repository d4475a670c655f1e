package smoke

import (
	"context"
	"errors"
	"fmt"

	"github.com/dewrun/dew/api/client"
)

// The exit statuses of dew that a run can have.
const (
	StatusFailed         = 1
	StatusUsage          = 2
	StatusStaging        = 3
	StatusCrashed        = 4
	StatusTimeout        = 5
	StatusUnreachable    = 6
	StatusMemory         = 7
	StatusAssertion      = 8
	StatusInfrastructure = 9
)

// Failure is the reason of a failed step: an exit status, a sentence, and the fix.
type Failure struct {
	Status int
	Err    error
	Todo   string
	Output string // output of a program before it failed
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

func failed(status int, format string, args ...any) *Failure {
	return &Failure{Status: status, Err: fmt.Errorf(format, args...)}
}

// asFailure returns err as a failure. If err has no exit status, the status is
// otherwise.
func asFailure(err error, otherwise int) *Failure {
	if err == nil {
		return nil
	}
	if f := (*Failure)(nil); errors.As(err, &f) {
		return f
	}
	if u := (*client.Unreachable)(nil); errors.As(err, &u) {
		return &Failure{Status: StatusUnreachable, Err: err, Todo: "the connection to dewd was lost: see the log of dewd"}
	}
	return &Failure{Status: otherwise, Err: err}
}

// causeOf returns the cause of ctx if that is a failure and err has no more
// information. Otherwise it returns err.
func causeOf(ctx context.Context, err error) error {
	if f := (*Failure)(nil); errors.As(err, &f) && f.Status == StatusTimeout {
		return err
	}
	if f := (*Failure)(nil); err != nil && ctx.Err() != nil && errors.As(context.Cause(ctx), &f) {
		return f
	}
	return err
}
