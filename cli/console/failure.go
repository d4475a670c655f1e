package console

import (
	"fmt"
)

// The exit statuses of dew; 8 belongs to assertions of smoke tests.
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

// Failure is an error with an exit status, and with what to do about it.
type Failure struct {
	Status int
	Err    error
	Advice string
}

// Error gives nothing for a failure that was told already.
func (f *Failure) Error() string {
	if f.Err == nil {
		return ""
	}
	return f.Err.Error()
}

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// UsageError is an error in a flag or an argument. The command adds its usage line.
func UsageError(format string, args ...any) error {
	return &Failure{Status: StatusUsage, Err: fmt.Errorf(format, args...)}
}
