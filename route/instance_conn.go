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

// instanceConn is a connection to an instance that is closed with the instance. While
// it is open, it pins the instance's network namespace.
type instanceConn struct {
	net.Conn
	endpoint *endpoint
	over     atomic.Bool // the instance has closed its side
	dropped  atomic.Pointer[func()]
}

// connect opens a connection to the instance.
func (e *endpoint) connect(ctx context.Context, network, address string) (*instanceConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := e.dial(ctx, e.instance, network, address)
	if err != nil {
		return nil, &unreachable{err}
	}
	h := &instanceConn{Conn: c, endpoint: e}
	if !e.register(h) {
		c.Close()
		return nil, &unreachable{net.ErrClosed}
	}
	return h, nil
}

// register registers the connection. It returns false if the instance has ended.
func (e *endpoint) register(h *instanceConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.conns[h] = struct{}{}
	}
	return !e.ended
}

// openConns returns the open connections.
func (e *endpoint) openConns() []*instanceConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.conns))
}

// closeWith closes a client's connection with the instance. The returned function undoes
// that.
func (e *endpoint) closeWith(client io.Closer) func() {
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

// end closes all connections, because the instance has ended.
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

// idle reports whether there are no connections.
func (e *endpoint) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns) == 0 && len(e.peers) == 0
}

// Read notices when the instance closes its side. If the instance is withdrawn, the
// connection is then closed without waiting for the client.
func (h *instanceConn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		h.finish()
	}
	return n, err
}

// finish records that the instance has closed its side.
func (h *instanceConn) finish() {
	h.over.Store(true)
	if h.endpoint.withdrawn.Load() {
		h.drop()
	}
}

// drop closes the connection, and the client connection joined to it.
func (h *instanceConn) drop() {
	_ = h.Close()
	if also := h.dropped.Load(); also != nil {
		(*also)()
	}
}

// Close closes the connection and unregisters it.
func (h *instanceConn) Close() error {
	e := h.endpoint
	e.mu.Lock()
	delete(e.conns, h)
	e.mu.Unlock()
	return h.Conn.Close()
}

// CloseWrite closes one direction, if the connection supports it.
func (h *instanceConn) CloseWrite() error { return closeWrite(h.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
