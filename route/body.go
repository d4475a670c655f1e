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

// errBodyTaken says that a request cannot be repeated: its body is on its way.
var errBodyTaken = errors.New("the request's body cannot be sent twice")

// errBodyLost is for a reader whose attempt is over.
var errBodyLost = errors.New("the request goes on elsewhere")

// body lends a request's body to one attempt at a time. An attempt that failed may
// still have a goroutine that is about to read; what it read would be missing from
// the next attempt.
type body struct {
	src    io.Reader
	client *http.ResponseController // bounds the time that a body takes; nil: nobody does

	mu     sync.Mutex   // guards the fields below
	pace   inbound.Pace // how slow it may still be, while the app waits for it
	holder *lease
	begun  bool // somebody has read
	ended  bool // there is no more
	failed bool // reading from the client failed
	slow   bool // because it was too slow
	free   bool // it may rest: the app has begun to answer
	timed  bool // the client has a deadline
	bytes  int64
}

// newBody is the body of a request that came in.
func newBody(src io.Reader, client *http.ResponseController, rate inbound.Rate) *body {
	return &body{src: src, client: client, pace: rate.Pace()}
}

// lend gives the body to a new attempt and takes it from the one before. It fails
// when something was read already.
func (b *body) lend() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.begun {
		return nil, errBodyTaken
	}
	b.holder = &lease{b}
	return b.holder, nil
}

// answered says that the app has begun to answer. From then on both sides may take
// their time: it may be a conversation.
func (b *body) answered() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timed {
		_ = b.client.SetReadDeadline(time.Time{}) // fails only where there was none
		b.timed = false
	}
	b.free = true
}

// bound gives the client time for the next bytes. The caller holds b.mu.
func (b *body) bound() {
	if b.free || b.client == nil {
		return
	}
	b.timed = b.client.SetReadDeadline(b.pace.Deadline(time.Now())) == nil
}

// unbound takes the bound away when all was read: the connection goes on. The caller
// holds b.mu.
func (b *body) unbound() {
	if b.timed && b.ended {
		_ = b.client.SetReadDeadline(time.Time{}) // it was set before, so it can be
		b.timed = false
	}
}

// end takes the body from whoever has it.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holder = nil
}

// finished tells whether the client has sent all of it.
func (b *body) finished() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// started tells whether something was read.
func (b *body) started() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// broken tells whether the client did not send what it promised.
func (b *body) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// late tells whether the client was cut off because it was too slow.
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

// lease is the body in the hands of one attempt.
type lease struct{ b *body }

func (l *lease) Read(p []byte) (int, error) {
	b := l.b
	b.mu.Lock()
	if b.holder != l {
		b.mu.Unlock()
		return 0, errBodyLost
	}
	// A transport asks once more when it has all. By then the app may be answering, and
	// the server, which knows that the body is over, may have closed it.
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

// Close only ends the lease. The body itself is the server's to close; for another
// attempt it must stay open.
func (l *lease) Close() error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.holder == l {
		l.b.holder = nil
	}
	return nil
}
