package droplet

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dewrun/dew/droplet/stack"
)

// Builder stages where it can do no harm: in a container of its own, which is
// gone when Build returns. Package runtime has the real one.
type Builder interface {
	// Build runs the command of s. When it has ended by itself, done is called with
	// its exit code, while its files are still there; its error is Build's. A
	// *StagingError says why the command did not come to its own end.
	Build(ctx context.Context, s Staging, done func(ctx context.Context, code int, f Files) error) error
}

// Staging is everything that a Builder needs for one build.
type Staging struct {
	Build    string // guid
	App      string // guid
	Stack    stack.Stack
	Layers   []Layer // laid into the container in this order before anything runs
	Command  string
	Dir      string
	Env      map[string]string // the platform's own variables go before them
	Services string            // VCAP_SERVICES; empty: none
	MemoryMB int
	DiskMB   int
	MaxFiles int64
	Timeout  time.Duration
	// Space is asked now and then; its error, that others need what is left of the
	// disk, ends the build. Nil: nobody does.
	Space func() error
}

// Layer is a tar whose files are laid into a container, owned by the app's user.
type Layer struct {
	Path  string // where to
	Strip string // a leading folder of its names that is left off; empty: none
	Open  func() (io.ReadCloser, error)
}

// Files are the files of a container whose command has ended.
type Files interface {
	// Pack writes a tar of what p names. What is more than p allows is a
	// *StagingError.
	Pack(ctx context.Context, w io.Writer, p Packing) error
}

// Packing says what to take out of a container.
type Packing struct {
	Folders  []Folder
	Files    []stack.File // put in beside them
	MaxBytes int64        // of all files together
	MaxFiles int64
}

// Folder is a folder of a container and its name in the tar; "": its content is
// at the top.
type Folder struct{ From, As string }

// StagingError says why a build failed for which nobody but the app, or its
// buildpack, is to blame.
type StagingError struct {
	// Kind is the platform's word for it: NoAppDetectedError, BuildpackCompileFailed,
	// BuildpackReleaseFailed or StagingError.
	Kind   string
	Reason string // a sentence
}

// What can go wrong, as the platform calls it. Clients look for these words.
const (
	NoAppDetected          = "NoAppDetectedError"
	BuildpackCompileFailed = "BuildpackCompileFailed"
	BuildpackReleaseFailed = "BuildpackReleaseFailed"
	StagingFailed          = "StagingError"
)

func (e *StagingError) Error() string { return fmt.Sprintf("%s - %s", e.Kind, e.Reason) }
