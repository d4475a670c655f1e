package load

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// The ways a Gate treats connections.
const (
	Open   = iota // forwards at once
	Slow          // forwards a few bytes at a time
	Silent        // accepts and forwards nothing
	Reset         // resets every connection, new ones after some bytes
)

// Gate is a TCP proxy in front of a peer of dewd. Faults change how it treats
// connections. It is safe for concurrent use.
type Gate struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	mode  int
	conns map[*net.TCPConn]bool
}

// NewGate returns a gate in front of an address, which is open until ctx is done.
func NewGate(ctx context.Context, to string) (*Gate, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &Gate{listener: l, to: to, conns: map[*net.TCPConn]bool{}}
	context.AfterFunc(ctx, func() { _ = l.Close(); g.Set(Reset) })
	go g.accept(ctx)
	return g, nil
}

// Address is where dewd finds the peer.
func (g *Gate) Address() string { return g.listener.Addr().String() }

// Set changes how the gate treats connections, including open ones.
func (g *Gate) Set(mode int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = mode
	if mode != Reset {
		return
	}
	for c := range g.conns {
		_ = c.SetReadDeadline(time.Now()) // ends the wait for bytes
	}
}

func (g *Gate) now() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode
}

func (g *Gate) accept(ctx context.Context) {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.forward(ctx, c.(*net.TCPConn))
	}
}

// forward connects one client with the peer.
func (g *Gate) forward(ctx context.Context, client *net.TCPConn) {
	g.mu.Lock()
	g.conns[client] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.conns, client)
		g.mu.Unlock()
		_ = client.Close()
	}()
	peer, err := new(net.Dialer).DialContext(ctx, "tcp4", g.to)
	if err != nil {
		return
	}
	defer peer.Close()
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		g.copy(ctx, client, peer, func() {})
		_ = client.CloseWrite()
	}()
	g.copy(ctx, peer, client, func() { reset(peer, client) })
	_ = peer.(*net.TCPConn).CloseWrite()
	<-answers
}

// reset resets the connection of a client. The peer gets the bytes that have arrived,
// because a client cannot know that they are lost.
func reset(peer io.Writer, client *net.TCPConn) {
	const rest = 50 * time.Millisecond
	_ = client.SetReadDeadline(time.Now().Add(rest))
	_, _ = io.Copy(peer, client)
	_ = client.SetLinger(0) // so that Close resets the connection
	_ = client.Close()
}

// copy forwards bytes in one direction, as the gate is set at that time. It calls reset
// once if the connection has to be reset.
func (g *Gate) copy(ctx context.Context, to io.Writer, from io.Reader, reset func()) {
	const slice, beat = 16, 20 * time.Millisecond
	buf := make([]byte, 32<<10)
	for ctx.Err() == nil {
		size := len(buf)
		switch g.now() {
		case Slow:
			size = slice
			<-time.After(beat)
		case Silent:
			<-time.After(beat)
			continue
		case Reset:
			reset()
		}
		n, err := from.Read(buf[:size])
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}
