package route

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits towards clients. There is none on the time of a whole request: long
// polls, streams and upgraded connections last as long as both ends want.
const (
	headerTimeout = 10 * time.Second
	keepAlive     = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Server makes the HTTP server in front of the router. A client gets ten seconds to
// send its header and two minutes between requests. It speaks HTTP/1.1, and HTTP/2
// to clients that begin with it.
func Server(h http.Handler) *http.Server {
	speaks := new(http.Protocols)
	speaks.SetHTTP1(true)
	speaks.SetHTTP2(true) // where there is TLS
	speaks.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols:                    speaks,
		Handler:                      h,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  keepAlive,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the app
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if s, ok := c.(*screen); ok && s.secure {
				return context.WithValue(ctx, secureKey{}, true)
			}
			return ctx
		},
	}
}

// secureKey marks requests that came over TLS before the screen.
type secureKey struct{}

func overTLS(ctx context.Context) bool { return ctx.Value(secureKey{}) != nil }

// Secure speaks TLS on a listener. Connections that agree on HTTP/2 come out as they
// are, others behind a screen.
func Secure(l net.Listener, cfg *tls.Config) net.Listener {
	s := &secured{Listener: l, cfg: cfg, ready: make(chan net.Conn), done: make(chan struct{})}
	go s.run()
	return s
}

// secured hands out connections when they have agreed: a client that takes its time
// keeps nobody.
type secured struct {
	net.Listener
	cfg   *tls.Config
	ready chan net.Conn
	done  chan struct{} // closed with the listener
	once  sync.Once
	err   error // of the listener; set before done is closed
}

func (s *secured) run() {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			s.stop(err)
			return
		}
		go s.agree(c)
	}
}

func (s *secured) stop(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.done)
	})
}

func (s *secured) agree(c net.Conn) {
	// The screen below bounds the time in which the client takes nothing.
	t := tls.Server(&screen{Conn: c, part: partAny}, s.cfg)
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout)) // a connection that has none has ended
	if err := t.Handshake(); err != nil {
		_ = c.Close() // nothing was said that could get lost
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	var out net.Conn = t
	if t.ConnectionState().NegotiatedProtocol != "h2" {
		out = &screen{Conn: t, secure: true}
	}
	select {
	case s.ready <- out:
	case <-s.done:
		_ = c.Close() // nothing was said that could get lost
	}
}

// Accept waits for the next connection that has agreed.
func (s *secured) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.done:
		return nil, s.err
	}
}

// Close ends the listener.
func (s *secured) Close() error {
	s.stop(net.ErrClosed)
	return s.Listener.Close()
}
