package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime/process"
)

// output is the captured output of a process: two files that the shim writes, and
// their readers.
type output struct {
	log              *logstream.Log
	capture          logstream.Capture // without its stream
	frozen           func() bool       // whether the process is paused
	outPath, errPath string
	out, err         *logstream.Tail
	captureFailed    atomic.Bool

	mu   sync.Mutex // guards last
	last []logstream.Envelope
}

// create creates the capture files, unless they exist.
func (o *output) create() error {
	var err error
	o.outPath, o.errPath, err = o.log.CreateCapture(o.capture.Source.InstanceID, o.capture.Exec)
	return err
}

// punctuality says whether the existing content of a capture file was printed while no
// daemon read it.
type punctuality bool

const (
	onTime punctuality = false
	late   punctuality = true
)

// follow starts the readers.
func (o *output) follow(when punctuality) error {
	capture := o.capture
	capture.Late = when == late
	capture.Paused = capture.Late && o.frozen()
	for _, s := range []struct {
		stream logstream.Stream
		tail   **logstream.Tail
	}{{logstream.Out, &o.out}, {logstream.Err, &o.err}} {
		capture.Stream = s.stream
		tail, err := o.log.Tail(capture)
		if err != nil {
			return fmt.Errorf("cannot follow output of %s: %w", capture.Exec, err)
		}
		*s.tail = tail
	}
	return nil
}

// drain copies the rest of the files of a dead process into the log.
func (o *output) drain(ctx context.Context) error {
	// A daemon can be killed after it created the first of two files.
	if _, _, err := o.log.CreateCapture(o.capture.Source.InstanceID, o.capture.Exec); err != nil {
		return err
	}
	if err := o.follow(late); err != nil {
		return err
	}
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		last, err := tail.Finish(ctx)
		if err != nil {
			return err
		}
		if err := o.log.Append(last...); err != nil {
			return err
		}
	}
	return nil
}

// finish reads the files of an exited process to their end. Even with an error it keeps
// the lines that it could read.
func (o *output) finish(ctx context.Context) error {
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

// takeLast returns the last lines, once.
func (o *output) takeLast() []logstream.Envelope {
	o.mu.Lock()
	defer o.mu.Unlock()
	es := o.last
	o.last = nil
	return es
}

// printed returns the number of bytes that the process has printed.
func (o *output) printed() (n int64) {
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		if tail != nil {
			n += tail.Size()
		}
	}
	return n
}

// close stops the readers.
func (o *output) close() {
	for _, tail := range []*logstream.Tail{o.out, o.err} {
		if tail != nil {
			tail.Close()
		}
	}
}

// broken reports whether a process still prints into a pipe that its shim holds,
// while the shim no longer holds a file for it. A process can have closed, redirected
// or merged its streams: then the shim has correctly closed a file. Therefore pipes and
// files are counted, not paired.
func (o *output) broken(pid int) bool {
	s, ok := process.ReadStat(process.Dir(pid))
	if !ok {
		return false
	}
	held := process.OpenFiles(s.Parent)
	if len(held) == 0 {
		return false
	}
	files := 0
	for _, path := range []string{o.outPath, o.errPath} {
		if id, err := process.FileID(path); err == nil && held[id] {
			files++
		}
	}
	pipes := map[string]bool{}
	for _, fd := range []string{"1", "2"} {
		id, err := process.FileID(filepath.Join("/proc", strconv.Itoa(pid), "fd", fd))
		if err == nil && strings.HasPrefix(id, "pipe ") && held[id] {
			pipes[id] = true
		}
	}
	return len(pipes) > files
}
