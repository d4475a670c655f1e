package route

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Most requests ask for something and bring nothing along. An http.Transport hands
// each of them to two goroutines and back, which costs more than all the rest; here
// the goroutine of the request itself writes to the instance and reads from it. That
// is possible because nothing has to be sent while the answer comes.

// maxInformational is how many answers may come before the one that counts.
const maxInformational = 8

// bare tells whether a request can go over a wire: it may be repeated without harm
// and has no body.
func bare(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return req.Body == nil && req.ContentLength == 0 && req.Trailer == nil && req.Header.Get("Upgrade") == ""
	}
	return false
}

// wires keeps connections to an instance that no request uses now.
type wires struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	life time.Duration // of one that no request uses

	mu    sync.Mutex // guards the fields below
	idle  map[string][]*wire
	sweep *time.Timer // runs while there are idle ones
}

// wire is one connection with its buffers. One request at a time uses it.
type wire struct {
	net.Conn
	address string
	r       *bufio.Reader
	w       *bufio.Writer
	used    bool      // it has carried a request before
	left    int64     // of the header's bound; below 0: there is none now
	heard   bool      // something came since the request was sent
	since   time.Time // idle
}

func newWire(c net.Conn, address string) *wire {
	w := &wire{Conn: c, address: address, left: -1}
	w.r, w.w = bufio.NewReader(w), bufio.NewWriter(w)
	return w
}

var errLongHeader = errors.New("the header of the answer is too long")

// Read bounds the header of an answer, and notes that there is one.
func (w *wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		return 0, errLongHeader
	}
	if w.left > 0 {
		p = p[:min(int64(len(p)), w.left)]
	}
	n, err := w.Conn.Read(p)
	w.heard = w.heard || n > 0
	if w.left > 0 {
		w.left -= int64(n)
	}
	return n, err
}

// RoundTrip sends a bare request and gives the answer, whose body must be closed.
func (ws *wires) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		w, err := ws.take(req.Context(), req.URL.Host)
		if err != nil {
			return nil, err
		}
		again := w.used
		stop := context.AfterFunc(req.Context(), func() { _ = w.SetDeadline(time.Unix(1, 0)) })
		res, err := w.ask(req)
		if err == nil {
			ws.attach(res, w, stop)
			return res, nil
		}
		stop()
		_ = w.Close()
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		// The instance ended the connection while nobody used it. A new one tells.
		if !again || w.heard {
			return nil, fmt.Errorf("cannot ask the instance: %w", err)
		}
	}
}

// ask writes the request and reads the header of the answer.
func (w *wire) ask(req *http.Request) (*http.Response, error) {
	w.used, w.heard, w.left = true, false, maxAnswerHeader
	if err := w.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	// Whoever gave up before had set a deadline that is gone now.
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	if err := req.Write(w.w); err != nil {
		return nil, err
	}
	if err := w.w.Flush(); err != nil {
		return nil, err
	}
	for range maxInformational {
		res, err := http.ReadResponse(w.r, req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode >= http.StatusOK {
			w.left = -1
			if err := w.SetReadDeadline(time.Time{}); err != nil {
				return nil, err
			}
			// The same here.
			return res, context.Cause(req.Context())
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the instance switches to a protocol that nobody asked for")
		}
		trace := httptrace.ContextClientTrace(req.Context())
		if trace == nil || trace.Got1xxResponse == nil {
			continue
		}
		if err := trace.Got1xxResponse(res.StatusCode, map[string][]string(res.Header)); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the instance sends nothing but informational answers")
}

// attach makes the wire free again when the answer's body has been read.
func (ws *wires) attach(res *http.Response, w *wire, stop func() bool) {
	b := &wireBody{ReadCloser: res.Body, wires: ws, wire: w, stop: stop, last: res.Close}
	if res.Body == http.NoBody || res.Request.Method == http.MethodHead {
		b.whole = true
		_ = b.Close() // there is nothing to close but the wire
		return
	}
	res.Body = b
}

// wireBody is the body of an answer.
type wireBody struct {
	io.ReadCloser
	wires *wires
	wire  *wire
	stop  func() bool
	last  bool // the connection ends with it
	whole bool // all was read
	done  bool
}

func (b *wireBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || err == io.EOF
	return n, err
}

// Close lets go of the connection: to be used again if nothing is left on it.
func (b *wireBody) Close() error {
	if b.done {
		return nil
	}
	b.done = true
	// A wire whose request was given up has a deadline in the past.
	if !b.stop() || !b.whole || b.last || b.wire.r.Buffered() > 0 {
		return b.wire.Close()
	}
	b.wires.put(b.wire)
	return nil
}

// take gives an idle wire, or a new one.
func (ws *wires) take(ctx context.Context, address string) (*wire, error) {
	for w := ws.kept(address); w != nil; w = ws.kept(address) {
		if w.silent() {
			return w, nil
		}
		_ = w.Close()
	}
	c, err := ws.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newWire(c, address), nil
}

// silent tells whether nothing came while nobody used the wire. What came then
// answers no request: it must not be taken for the answer to the next one.
func (w *wire) silent() bool {
	raw, ok := rawConn(w.Conn)
	if !ok {
		return true
	}
	var n int
	var got error
	err := raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, got = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return true
	})
	return err == nil && n <= 0 && errors.Is(got, unix.EAGAIN)
}

// rawConn finds the socket behind a connection.
func rawConn(c net.Conn) (syscall.RawConn, bool) {
	if h, ok := c.(*held); ok {
		c = h.Conn
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := s.SyscallConn()
	return raw, err == nil
}

// kept takes the wire that was used last: the others may be closed soon.
func (ws *wires) kept(address string) *wire {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l := ws.idle[address]
	if len(l) == 0 {
		return nil
	}
	w := l[len(l)-1]
	if time.Since(w.since) > ws.life {
		return nil // so are all others: the sweep closes them
	}
	l[len(l)-1] = nil
	ws.idle[address] = l[:len(l)-1]
	return w
}

func (ws *wires) put(w *wire) {
	w.since = time.Now()
	ws.mu.Lock()
	l := ws.idle[w.address]
	if len(l) >= maxIdle {
		ws.mu.Unlock()
		_ = w.Close()
		return
	}
	defer ws.mu.Unlock()
	if ws.idle == nil {
		ws.idle = map[string][]*wire{}
	}
	ws.idle[w.address] = append(l, w)
	if ws.sweep == nil {
		ws.sweep = time.AfterFunc(ws.life, ws.sweepOld)
	}
}

// sweepOld closes the wires that nobody has used for a while, and comes back while
// there are others.
func (ws *wires) sweepOld() {
	for _, w := range ws.takeOld(time.Now().Add(-ws.life)) {
		_ = w.Close()
	}
}

func (ws *wires) takeOld(before time.Time) []*wire {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var old []*wire
	for address, l := range ws.idle {
		n := slices.IndexFunc(l, func(w *wire) bool { return w.since.After(before) })
		if n < 0 {
			n = len(l)
		}
		old = append(old, l[:n]...)
		if ws.idle[address] = slices.Clone(l[n:]); n == len(l) {
			delete(ws.idle, address)
		}
	}
	ws.sweep = nil
	if len(ws.idle) > 0 {
		ws.sweep = time.AfterFunc(ws.life, ws.sweepOld)
	}
	return old
}

// CloseIdleConnections closes the wires that no request uses.
func (ws *wires) CloseIdleConnections() {
	for _, w := range ws.takeOld(time.Now().Add(time.Hour)) {
		_ = w.Close()
	}
}
