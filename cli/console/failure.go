package console

import (
	"fmt"
)

// The exit statuses of dew; 8 is for failed checks of smoke tests.
const (
	StatusFailed         = 1
	StatusUsage          = 2
	StatusStaging        = 3
	StatusCrashed        = 4
	StatusTimeout        = 5
	StatusUnreachable    = 6
	StatusMemory         = 7
	StatusInfrastructure = 9
)

// Failure is an error with an exit status and with advice for the user.
type Failure struct {
	Status int
	Err    error
	Advice string
}

// Error is empty for a failure that the user has already seen.
func (f *Failure) Error() string {
	if f.Err == nil {
		return ""
	}
	return f.Err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// UsageError is an error in a flag or an argument. The command adds its usage line as
// advice.
func UsageError(format string, args ...any) error {
	return &Failure{Status: StatusUsage, Err: fmt.Errorf(format, args...)}
}
