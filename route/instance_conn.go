package route

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync/atomic"
)

// instanceConn is a connection to an instance that ends with it, whoever uses it: while it is
// open it pins the instance's network namespace.
type instanceConn struct {
	net.Conn
	endpoint *endpoint
	over     atomic.Bool // the instance sends no more
	dropped  atomic.Pointer[func()]
}

// connect makes a connection to the instance.
func (e *endpoint) connect(ctx context.Context, network, address string) (*instanceConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := e.dial(ctx, e.instance, network, address)
	if err != nil {
		return nil, &unreachable{err}
	}
	h := &instanceConn{Conn: c, endpoint: e}
	if !e.keep(h) {
		c.Close()
		return nil, &unreachable{net.ErrClosed}
	}
	return h, nil
}

// keep notes the connection; false: the instance has ended.
func (e *endpoint) keep(h *instanceConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.conns[h] = struct{}{}
	}
	return !e.ended
}

// openConns are the open connections.
func (e *endpoint) openConns() []*instanceConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.conns))
}

// join makes a client's connection end with the instance; the function lets go of it.
func (e *endpoint) join(client io.Closer) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		client.Close()
	}
	e.peers[client] = struct{}{}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.peers, client)
	}
}

// end closes everything: the instance is no more.
func (e *endpoint) end() {
	e.mu.Lock()
	e.ended = true
	peers := slices.Collect(maps.Keys(e.peers))
	e.mu.Unlock()
	for _, c := range e.openConns() {
		c.drop()
	}
	for _, p := range peers {
		p.Close()
	}
}

// idle tells whether nothing is connected.
func (e *endpoint) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns) == 0 && len(e.peers) == 0
}

// Read notes when the instance sends no more. Where no route leads to it any longer
// that is the end: nobody waits for a client that has nothing more to say.
func (h *instanceConn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		h.finish()
	}
	return n, err
}

// finish says that the instance sends no more.
func (h *instanceConn) finish() {
	h.over.Store(true)
	if h.endpoint.withdrawn.Load() {
		h.drop()
	}
}

// drop closes the connection, and what is joined to it.
func (h *instanceConn) drop() {
	_ = h.Close()
	if also := h.dropped.Load(); also != nil {
		(*also)()
	}
}

// Close lets go of the connection.
func (h *instanceConn) Close() error {
	e := h.endpoint
	e.mu.Lock()
	delete(e.conns, h)
	e.mu.Unlock()
	return h.Conn.Close()
}

// CloseWrite ends one direction, where the connection can.
func (h *instanceConn) CloseWrite() error { return closeWrite(h.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
