package route

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/dewrun/dew/inbound"
)

// errBodySent means that a request cannot be repeated because its body is already
// being sent.
var errBodySent = errors.New("the request body cannot be sent twice")

// errAttemptOver is the read error of an attempt that is over.
var errAttemptOver = errors.New("the request was sent to another instance")

// body lends a request's body to one attempt at a time. A failed attempt can still have
// a goroutine that is about to read. Data that it read would be missing in the next
// attempt.
type body struct {
	src    io.Reader
	client *http.ResponseController // limits the time of a body (nil: no limit)

	mu     sync.Mutex   // guards the fields below
	pace   inbound.Pace // how slow it can still be while the app waits for it
	holder *lease
	begun  bool // something was read
	ended  bool // everything was read
	failed bool // reading from the client failed
	slow   bool // because it was too slow
	free   bool // no time limit: the app has started to respond
	timed  bool // a read deadline is set
	bytes  int64
}

// newBody returns the body of an incoming request.
func newBody(src io.Reader, client *http.ResponseController, rate inbound.Rate) *body {
	return &body{src: src, client: client, pace: rate.Pace()}
}

// lend lends the body to a new attempt and takes it from the previous one. It fails if
// something was already read.
func (b *body) lend() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.begun {
		return nil, errBodySent
	}
	b.holder = &lease{b}
	return b.holder, nil
}

// answered says that the app has started to respond. From then on there is no time
// limit, because it may be a bidirectional stream.
func (b *body) answered() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed {
		_ = b.client.SetReadDeadline(time.Time{}) // fails only if there was none
		b.timed = false
	}
	b.free = true
}

// bound sets a deadline for the next bytes of the client. The caller holds b.mu.
func (b *body) bound() {
	if b.free || b.client == nil {
		return
	}
	b.timed = b.client.SetReadDeadline(b.pace.Deadline(time.Now())) == nil
}

// unbound removes the deadline when everything was read, because the connection stays
// open. The caller holds b.mu.
func (b *body) unbound() {
	if b.timed && b.ended {
		_ = b.client.SetReadDeadline(time.Time{}) // it was set before, so this cannot fail
		b.timed = false
	}
}

// end takes the body from the current attempt.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holder = nil
}

// finished reports whether the client has sent the whole body.
func (b *body) finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// started reports whether something was read.
func (b *body) started() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// broken reports whether reading the body from the client failed.
func (b *body) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// late reports whether the client was too slow and was disconnected.
func (b *body) late() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slow
}

func (b *body) count() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// lease is the body as one attempt sees it.
type lease struct{ b *body }

func (l *lease) Read(p []byte) (int, error) {
	b := l.b
	b.mu.Lock()
	if b.holder != l {
		b.mu.Unlock()
		return 0, errAttemptOver
	}
	// A transport reads once more at the end. By then the app may be responding, and
	// the server, which knows that the body is complete, may have closed it.
	if b.ended {
		b.mu.Unlock()
		return 0, io.EOF
	}
	b.begun = true
	b.bound()
	b.mu.Unlock()
	began := time.Now()
	n, err := b.src.Read(p)
	waited := time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace.Arrived(n, waited)
	b.bytes += int64(n)
	b.ended = b.ended || err == io.EOF
	b.unbound()
	b.failed = b.failed || err != nil && err != io.EOF && b.holder == l
	b.slow = b.slow || b.failed && errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// Close only ends the lease. The server closes the body itself; it must stay open for
// another attempt.
func (l *lease) Close() error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.holder == l {
		l.b.holder = nil
	}
	return nil
}
