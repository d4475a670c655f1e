package route

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits for clients. The time of a whole request is not limited: long polls, streams
// and upgraded connections last as long as both ends want.
const (
	headerTimeout = 10 * time.Second
	keepAlive     = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Server returns the HTTP server for the router. A client has ten seconds to send its
// header and two minutes between requests. It supports HTTP/1.1, and HTTP/2 for clients
// that start with it.
func Server(h http.Handler) *http.Server {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(true)
	speaks.SetHTTP2(true) // over TLS
	speaks.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols:                    speaks,
		Handler:                      h,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  keepAlive,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // the app must answer OPTIONS *
		ConnContext:                  withState,
	}
}

// Screened makes another server ready for the connections of Screen and Secure.
func Screened(s *http.Server) *http.Server {
	h := s.Handler
	s.ConnContext = withState
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setTLS(r)
		h.ServeHTTP(w, r)
	})
	return s
}

// withState adds the state of TLS before a screen to the context of a connection.
func withState(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(*screen); ok {
		if t, ok := s.Conn.(*tls.Conn); ok {
			return context.WithValue(ctx, secureKey{}, t.ConnectionState())
		}
	}
	return ctx
}

// setTLS sets the state of TLS of a request. net/http sets it only without a screen.
func setTLS(r *http.Request) {
	if state, ok := r.Context().Value(secureKey{}).(tls.ConnectionState); ok && r.TLS == nil {
		r.TLS = &state
	}
}

// secureKey has the state of the connection of requests that came over TLS before the
// screen.
type secureKey struct{}

func overTLS(ctx context.Context) bool { return ctx.Value(secureKey{}) != nil }

// Secure returns a listener with TLS. HTTP/2 connections are returned directly, others
// with a screen.
func Secure(l net.Listener, cfg *tls.Config) net.Listener {
	s := &secured{Listener: l, cfg: cfg, ready: make(chan net.Conn), done: make(chan struct{})}
	go s.run()
	return s
}

// secured returns connections after their handshake: a slow client blocks no other
// client.
type secured struct {
	net.Listener
	cfg   *tls.Config
	ready chan net.Conn
	done  chan struct{} // closed with the listener
	once  sync.Once
	err   error // of the listener, set before done is closed
}

func (s *secured) run() {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			s.stop(err)
			return
		}
		go s.handshake(c)
	}
}

func (s *secured) stop(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.done)
	})
}

func (s *secured) handshake(c net.Conn) {
	// The screen below TLS limits the time in which the client reads nothing.
	t := tls.Server(&screen{Conn: c, part: partAny}, s.cfg)
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout)) // fails only if the connection has ended
	if err := t.Handshake(); err != nil {
		_ = c.Close() // no data can be lost
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	var out net.Conn = t
	if t.ConnectionState().NegotiatedProtocol != "h2" {
		out = &screen{Conn: t}
	}
	select {
	case s.ready <- out:
	case <-s.done:
		_ = c.Close() // no data can be lost
	}
}

// Accept waits for the next connection with a completed handshake.
func (s *secured) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.done:
		return nil, s.err
	}
}

// Close closes the listener.
func (s *secured) Close() error {
	s.stop(net.ErrClosed)
	return s.Listener.Close()
}
