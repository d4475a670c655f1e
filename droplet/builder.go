package droplet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dewrun/dew/droplet/packing"
	"github.com/dewrun/dew/droplet/stack"
)

// Builder stages apps in isolation: in their own container, which is removed before
// Build returns. Package runtime implements it.
type Builder interface {
	// Build runs the command of s. When the command has exited by itself, Build calls
	// done with its exit code. The files still exist then; Build returns the error of
	// done. A *StagingError says why the command was stopped.
	Build(ctx context.Context, s Staging, done func(ctx context.Context, code int, f Files) error) error
}

// Staging is the input of a Builder for one build.
type Staging struct {
	Build    string // guid
	App      string // guid
	Stack    stack.Stack
	Layers   []Layer // unpacked into the container in this order before the command starts
	Command  string
	Dir      string
	Env      map[string]string // the variables of Cloud Foundry override them
	Services string            // VCAP_SERVICES; empty: none
	MemoryMB int
	DiskMB   int
	MaxFiles int64
	Timeout  time.Duration
	// Space is called regularly. Its error stops the build, so that other apps keep
	// enough disk space. Nil means no check.
	Space func() error
}

// Layer is a tar whose files are unpacked into a container, owned by the app's user.
type Layer struct {
	Path  string // target folder
	Strip string // leading folder to remove from the names; empty: none
	Open  func() (io.ReadCloser, error)
}

// Files gives access to the files of a container whose command has exited.
type Files interface {
	// Pack writes a tar of the files in p. If they exceed the limits of p, the error is
	// a *StagingError.
	Pack(ctx context.Context, w io.Writer, p Packing) error
}

// Packing selects files of a container.
type Packing = packing.Packing

// Folder is a folder of a container and its name in the tar.
type Folder = packing.Folder

// StagingError is the reason of a failed build that the app or its buildpack caused.
type StagingError struct {
	// Kind is the error code of Cloud Foundry: NoAppDetectedError,
	// BuildpackCompileFailed, BuildpackReleaseFailed or StagingError.
	Kind   string
	Reason string // a sentence
}

// The error codes of Cloud Foundry. Clients check for them.
const (
	NoAppDetected          = "NoAppDetectedError"
	BuildpackCompileFailed = "BuildpackCompileFailed"
	BuildpackReleaseFailed = "BuildpackReleaseFailed"
	StagingFailed          = "StagingError"
)

func (e *StagingError) Error() string { return fmt.Sprintf("%s - %s", e.Kind, e.Reason) }

// Refusal returns err as a *StagingError if files exceed a limit or are not allowed in a
// droplet.
func Refusal(err error) error {
	if r := (*packing.Refused)(nil); errors.As(err, &r) {
		return &StagingError{Kind: StagingFailed, Reason: r.Reason}
	}
	return err
}
