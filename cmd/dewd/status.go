package main

import (
	"errors"
	"strings"
)

// The exit codes of dewd; the numbers in between belong to dew.
const (
	statusFailed         = 1
	statusUsage          = 2
	statusInfrastructure = 9
)

const statusHelp = `Exit status:
   0  success
   1  failed
   2  usage: a flag, its value or a command is wrong
   9  infrastructure: this machine lacks a requirement; dewd doctor names it`

// failure is an error with its own exit code.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// infrastructure marks an error as a missing requirement of the machine.
func infrastructure(err error) error {
	if err == nil {
		return nil
	}
	return &failure{status: statusInfrastructure, err: err}
}

func statusOf(err error) int {
	if err == nil {
		return 0
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.status
	}
	return statusFailed
}

// oneLine puts joined errors on one line for scripts and people.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
