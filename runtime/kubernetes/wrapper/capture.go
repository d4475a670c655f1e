package wrapper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// capture is one stream of output, from a pipe into a file. If too much of the file is
// not stored elsewhere, it stops reading, and the kernel pauses the process at its next
// write.
type capture struct {
	file    *os.File
	backlog int64
	done    chan struct{} // closed at the end of the output
	grown   chan struct{}

	mu      sync.Mutex // guards the fields below
	less    *sync.Cond // the backlog is smaller
	size    int64
	freed   int64
	punched int64
}

// holeStep is the minimum number of bytes that are given back to the file system.
const holeStep = 256 << 10

// readSize is the number of bytes of one read. It is the size of a pipe.
const readSize = 64 << 10

func openCapture(path string, backlog int64) (*capture, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot create the file for the output: %w", err)
	}
	c := &capture{file: f, backlog: backlog, done: make(chan struct{}), grown: make(chan struct{}, 1)}
	c.less = sync.NewCond(&c.mu)
	return c, nil
}

// copy copies until no process can write to the pipe any more.
func (c *capture) copy(r *os.File) {
	defer close(c.done)
	defer r.Close()
	for buf := make([]byte, readSize); ; {
		c.awaitRoom()
		n, err := r.Read(buf)
		if n > 0 {
			c.write(buf[:n])
		}
		if err != nil {
			return // io.EOF
		}
	}
}

func (c *capture) awaitRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.size-c.freed >= c.backlog {
		c.less.Wait()
	}
}

// write appends to the file. While the disk is full it tries again: the process waits.
func (c *capture) write(b []byte) {
	for {
		n, err := c.file.WriteAt(b, c.position())
		c.mu.Lock()
		c.size += int64(n)
		c.mu.Unlock()
		c.notify()
		if b = b[n:]; len(b) == 0 {
			return
		}
		if err != nil {
			<-time.After(100 * time.Millisecond)
		}
	}
}

func (c *capture) notify() {
	select {
	case c.grown <- struct{}{}:
	default: // a report is due anyway
	}
}

func (c *capture) position() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// paused reports whether the process waits until its output is stored.
func (c *capture) paused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size-c.freed >= c.backlog
}

// free gives back the bytes before the offset.
func (c *capture) free(to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to = min(to, c.size)
	if to <= c.freed {
		return
	}
	c.freed = to
	c.less.Broadcast()
	if to-c.punched < holeStep {
		return
	}
	// A file system without holes keeps the bytes. The size of its volume has a limit.
	if err := unix.Fallocate(int(c.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, c.punched, to-c.punched); err == nil || errors.Is(err, unix.EOPNOTSUPP) {
		c.punched = to
	}
}

// report sends the size of the file at first and whenever it has grown.
func (c *capture) report(ctx context.Context, stream int, frames *link.Frames) {
	for sent := int64(-1); ; {
		if size := c.position(); size != sent {
			sent = size
			if frames.Write(link.KindGrown, link.Position{Stream: byte(stream), Offset: size}.Encode()) != nil {
				return
			}
		}
		select {
		case <-c.grown:
		case <-ctx.Done():
			c.notify() // for the next stream
			return
		}
	}
}
