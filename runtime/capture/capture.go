// Package capture follows the output of one process, which an engine writes into two
// capture files, into the log of an app.
package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dewrun/dew/logstream"
)

// Output is the captured output of a process: two files, and their readers.
type Output struct {
	Log              *logstream.Log
	Capture          logstream.Capture // without its stream
	Frozen           func() bool       // whether the process is paused
	OutPath, ErrPath string
	out, err         *logstream.Tail

	mu   sync.Mutex // guards last
	last []logstream.Envelope
}

// Create creates the capture files, unless they exist.
func (o *Output) Create() error {
	var err error
	o.OutPath, o.ErrPath, err = o.Log.CreateCapture(o.Capture.Source.InstanceID, o.Capture.Exec)
	return err
}

// Punctuality says whether the existing content of a capture file was printed while no
// daemon read it.
type Punctuality bool

// The values of Punctuality.
const (
	OnTime Punctuality = false
	Late   Punctuality = true
)

// Follow starts the readers.
func (o *Output) Follow(when Punctuality) error {
	capture := o.Capture
	capture.Late = when == Late
	capture.Paused = capture.Late && o.Frozen()
	for _, s := range []struct {
		stream logstream.Stream
		tail   **logstream.Tail
	}{{logstream.Out, &o.out}, {logstream.Err, &o.err}} {
		capture.Stream = s.stream
		tail, err := o.Log.Tail(capture)
		if err != nil {
			return fmt.Errorf("cannot follow output of %s: %w", capture.Exec, err)
		}
		*s.tail = tail
	}
	return nil
}

// Drain copies the rest of the files of a dead process into the log.
func (o *Output) Drain(ctx context.Context) error {
	// A daemon can be killed after it created the first of two files.
	if _, _, err := o.Log.CreateCapture(o.Capture.Source.InstanceID, o.Capture.Exec); err != nil {
		return err
	}
	if err := o.Follow(Late); err != nil {
		return err
	}
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		last, err := tail.Finish(ctx)
		if err != nil {
			return err
		}
		if err := o.Log.Append(last...); err != nil {
			return err
		}
	}
	return nil
}

// Finish reads the files of an exited process to their end. Even with an error it keeps
// the lines that it could read.
func (o *Output) Finish(ctx context.Context) error {
	var last []logstream.Envelope
	var errs error
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		es, err := tail.Finish(ctx)
		errs = errors.Join(errs, err)
		last = append(last, es...)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = last
	return errs
}

// TakeLast returns the last lines, once.
func (o *Output) TakeLast() []logstream.Envelope {
	o.mu.Lock()
	defer o.mu.Unlock()
	es := o.last
	o.last = nil
	return es
}

// Printed returns the number of bytes that the process has printed.
func (o *Output) Printed() (n int64) {
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		if tail != nil {
			n += tail.Size()
		}
	}
	return n
}

// Close stops the readers.
func (o *Output) Close() {
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		if tail != nil {
			tail.Close()
		}
	}
}
