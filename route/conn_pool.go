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

// Most requests have no body. An http.Transport passes each of them through two more
// goroutines, which costs more than everything else. Here the goroutine of the request
// itself writes to the instance and reads from it. That is possible because nothing has
// to be sent while the response arrives.

// maxInformational is how many informational responses can precede the final one.
const maxInformational = 8

// canPool reports whether a request can use a pooled connection: it can be repeated
// safely and has no body.
func canPool(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return req.Body == nil && req.ContentLength == 0 && req.Trailer == nil && req.Header.Get("Upgrade") == ""
	}
	return false
}

// connPool has the idle connections to an instance.
type connPool struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	life time.Duration // maximum idle time

	mu    sync.Mutex // guards the fields below
	idle  map[string][]*pooledConn
	sweep *time.Timer // set while there are idle connections
}

// pooledConn is one connection with its buffers. One request at a time uses it.
type pooledConn struct {
	net.Conn
	address string
	r       *bufio.Reader
	w       *bufio.Writer
	used    bool      // it has had a request before
	left    int64     // remaining bytes of the header limit (negative: no limit)
	heard   bool      // data was received since the request was sent
	since   time.Time // when it became idle
}

func newPooledConn(c net.Conn, address string) *pooledConn {
	w := &pooledConn{Conn: c, address: address, left: -1}
	w.r, w.w = bufio.NewReader(w), bufio.NewWriter(w)
	return w
}

var errLongHeader = errors.New("the response header is too long")

// Read limits the header of a response, and records that data was received.
func (c *pooledConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errLongHeader
	}
	if c.left > 0 {
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.Conn.Read(p)
	c.heard = c.heard || n > 0
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// RoundTrip sends a request without a body and returns the response, whose body must be
// closed.
func (p *connPool) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		c, err := p.get(req.Context(), req.URL.Host)
		if err != nil {
			return nil, err
		}
		again := c.used
		stop := context.AfterFunc(req.Context(), func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		res, err := c.roundTrip(req)
		if err == nil {
			p.attach(res, c, stop)
			return res, nil
		}
		stop()
		_ = c.Close()
		if cause := context.Cause(req.Context()); cause != nil {
			return nil, cause
		}
		// The instance closed the idle connection. Try a new one.
		if !again || c.heard {
			return nil, fmt.Errorf("cannot send the request to the instance: %w", err)
		}
	}
}

// roundTrip writes the request and reads the header of the response.
func (c *pooledConn) roundTrip(req *http.Request) (*http.Response, error) {
	c.used, c.heard, c.left = true, false, maxAnswerHeader
	if err := c.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	// A cancelled request had set a deadline, which was just overwritten.
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	if err := req.Write(c.w); err != nil {
		return nil, err
	}
	if err := c.w.Flush(); err != nil {
		return nil, err
	}
	for range maxInformational {
		res, err := http.ReadResponse(c.r, req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode >= http.StatusOK {
			c.left = -1
			if err := c.SetReadDeadline(time.Time{}); err != nil {
				return nil, err
			}
			// The same check after the deadline was reset.
			return res, context.Cause(req.Context())
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("the instance switches to a protocol that the client did not request")
		}
		trace := httptrace.ContextClientTrace(req.Context())
		if trace == nil || trace.Got1xxResponse == nil {
			continue
		}
		if err := trace.Got1xxResponse(res.StatusCode, map[string][]string(res.Header)); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the instance sends only informational (1xx) responses")
}

// attach makes the connection idle again when the response body has been read.
func (p *connPool) attach(res *http.Response, c *pooledConn, stop func() bool) {
	b := &pooledBody{ReadCloser: res.Body, pool: p, conn: c, stop: stop, last: res.Close}
	if res.Body == http.NoBody || res.Request.Method == http.MethodHead {
		b.whole = true
		_ = b.Close() // only the connection has to be released
		return
	}
	res.Body = b
}

// pooledBody is the body of a response.
type pooledBody struct {
	io.ReadCloser
	pool  *connPool
	conn  *pooledConn
	stop  func() bool
	last  bool // the connection must be closed after it
	whole bool // it was read completely
	done  bool
}

func (b *pooledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || err == io.EOF
	return n, err
}

// Close releases the connection. It can be reused if no data is left on it.
func (b *pooledBody) Close() error {
	if b.done {
		return nil
	}
	b.done = true
	// The connection of a cancelled request has a deadline in the past.
	if !b.stop() || !b.whole || b.last || b.conn.r.Buffered() > 0 {
		return b.conn.Close()
	}
	b.pool.put(b.conn)
	return nil
}

// get returns an idle connection, or a new one.
func (p *connPool) get(ctx context.Context, address string) (*pooledConn, error) {
	for w := p.takeNewest(address); w != nil; w = p.takeNewest(address) {
		if w.silent() {
			return w, nil
		}
		_ = w.Close()
	}
	c, err := p.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newPooledConn(c, address), nil
}

// silent reports whether no data arrived while the connection was idle. Such data
// belongs to no request and must not be mistaken for the response to the next one.
func (c *pooledConn) silent() bool {
	raw, ok := rawConn(c.Conn)
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

// rawConn returns the socket of a connection.
func rawConn(c net.Conn) (syscall.RawConn, bool) {
	if h, ok := c.(*instanceConn); ok {
		c = h.Conn
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := s.SyscallConn()
	return raw, err == nil
}

// takeNewest returns the connection that was used last: the others may be closed soon.
func (p *connPool) takeNewest(address string) *pooledConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.idle[address]
	if len(l) == 0 {
		return nil
	}
	c := l[len(l)-1]
	if time.Since(c.since) > p.life {
		return nil // all others are also too old: the sweep closes them
	}
	l[len(l)-1] = nil
	p.idle[address] = l[:len(l)-1]
	return c
}

func (p *connPool) put(c *pooledConn) {
	c.since = time.Now()
	p.mu.Lock()
	l := p.idle[c.address]
	if len(l) >= maxIdle {
		p.mu.Unlock()
		_ = c.Close()
		return
	}
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[string][]*pooledConn{}
	}
	p.idle[c.address] = append(l, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.life, p.sweepOld)
	}
}

// sweepOld closes the connections that were idle for too long. It runs again as long as
// there are others.
func (p *connPool) sweepOld() {
	for _, c := range p.takeOld(time.Now().Add(-p.life)) {
		_ = c.Close()
	}
}

func (p *connPool) takeOld(before time.Time) []*pooledConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var old []*pooledConn
	for address, l := range p.idle {
		n := slices.IndexFunc(l, func(c *pooledConn) bool { return c.since.After(before) })
		if n < 0 {
			n = len(l)
		}
		old = append(old, l[:n]...)
		if p.idle[address] = slices.Clone(l[n:]); n == len(l) {
			delete(p.idle, address)
		}
	}
	p.sweep = nil
	if len(p.idle) > 0 {
		p.sweep = time.AfterFunc(p.life, p.sweepOld)
	}
	return old
}

// CloseIdleConnections closes the idle connections.
func (p *connPool) CloseIdleConnections() {
	for _, c := range p.takeOld(time.Now().Add(time.Hour)) {
		_ = c.Close()
	}
}
