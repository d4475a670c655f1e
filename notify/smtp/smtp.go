package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/dewrun/dew/notify/delivery"
)

// TLSUse says when a connection to the mail server uses TLS.
type TLSUse string

// The ways to use TLS.
const (
	TLSIfOffered TLSUse = "if-offered" // STARTTLS if the server offers it, otherwise no TLS
	TLSStart     TLSUse = "starttls"   // STARTTLS is required
	TLSImplicit  TLSUse = "tls"        // TLS from the start of the connection
	TLSNone      TLSUse = "none"
)

// AuthUse is the authentication method for the mail server.
type AuthUse string

// The authentication methods.
const (
	AuthNone    AuthUse = "none"
	AuthPlain   AuthUse = "plain" // over TLS only, or on the local machine
	AuthCRAMMD5 AuthUse = "cram-md5"
)

// Config configures the mail server.
type Config struct {
	Address  string  // host:port
	TLS      TLSUse  // empty: TLSIfOffered
	Auth     AuthUse // empty: AuthNone
	User     string
	Password string // also the secret of cram-md5
	// AuthOptional sends mails without authentication, after a warning, if the server
	// does not offer it, if a setting for it is missing, or if it would send the
	// password unencrypted. Otherwise these are errors.
	AuthOptional bool
	Trust        *tls.Config // nil: the machine's certificates
	Hello        string      // name of this host in HELO (empty: localhost)
	Timeouts     Timeouts
	Logger       *slog.Logger // nil: no warnings
}

// Timeouts are the time limits of the steps of a delivery. A step without a limit has
// that of RFC 5321, section 4.5.3.2, and Connect has 15 seconds.
type Timeouts struct {
	Connect time.Duration // the TCP connection
	Command time.Duration // the answer to a command, and the greeting
	Data    time.Duration // the answer to DATA
	Block   time.Duration // sending one block of the mail
	Accept  time.Duration // the answer to the end of the mail
}

// withDefaults returns the timeouts with all limits.
func (t Timeouts) withDefaults() Timeouts {
	for _, v := range []struct {
		limit     *time.Duration
		otherwise time.Duration
	}{
		{&t.Connect, 15 * time.Second},
		{&t.Command, 5 * time.Minute},
		{&t.Data, 2 * time.Minute},
		{&t.Block, 3 * time.Minute},
		{&t.Accept, 10 * time.Minute},
	} {
		if *v.limit <= 0 {
			*v.limit = v.otherwise
		}
	}
	return t
}

const (
	// idleLimit is how long a connection waits for the next mail. Servers wait longer.
	idleLimit = 10 * time.Second
	// maxIdle is the maximum number of idle connections.
	maxIdle = delivery.DefaultWorkers
	// maxMails is the number of mails per connection, because some servers limit it.
	maxMails = 100
	// quitLimit is how long a connection waits for the answer to QUIT.
	quitLimit = time.Second
)

// Client is a Mailer that sends mails to a mail server. It leaves connections open for
// the next mail.
type Client struct {
	c     Config
	host  string
	trust *tls.Config

	warnOnce  sync.Once // of a mail without authentication
	warnPlain sync.Once // of a mail without encryption
	quitting  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	idle   []*connection
	closed bool
}

// connection is an open connection to the mail server.
type connection struct {
	conn   net.Conn
	client *smtp.Client
	mails  int
	since  time.Time // time of the last mail
}

// New checks c. It does not connect.
func New(c Config) (*Client, error) {
	host, err := hostOf(c.Address)
	if err != nil {
		return nil, err
	}
	if err := c.check(host); err != nil {
		return nil, err
	}
	c.Timeouts = c.Timeouts.withDefaults()
	if c.Hello == "" {
		c.Hello = "localhost"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{c: c, host: host, trust: c.trust(host)}, nil
}

func hostOf(address string) (string, error) {
	host, p, err := net.SplitHostPort(address)
	port := 0
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || host == "" || port < 1 || port > 65535 {
		return "", fmt.Errorf("cannot send mails: the mail server must have the form mail.example.com:587, not %q", address)
	}
	return host, nil
}

// trust returns the TLS settings to verify the mail server.
func (c Config) trust(host string) *tls.Config {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Trust != nil {
		trust = c.Trust.Clone()
	}
	if trust.ServerName == "" {
		trust.ServerName = host
	}
	return trust
}

// check returns an error if the settings contradict each other.
func (c Config) check(host string) error {
	switch c.TLS {
	case TLSIfOffered, TLSStart, TLSImplicit, TLSNone, "":
	default:
		return fmt.Errorf("cannot send mails: TLS must be if-offered, starttls, tls or none, not %q", c.TLS)
	}
	switch c.Auth {
	case AuthNone, "":
		return nil
	case AuthPlain, AuthCRAMMD5:
	default:
		return fmt.Errorf("cannot send mails: authentication must be none, plain or cram-md5, not %q", c.Auth)
	}
	switch {
	case c.AuthOptional:
		return nil
	case c.Auth == AuthPlain && c.TLS == TLSNone && !loopback(host):
		return errors.New("cannot send mails: plain authentication without TLS would send the password unencrypted; use starttls, tls or cram-md5")
	case c.User == "" || c.Password == "":
		return fmt.Errorf("cannot send mails: %s authentication requires a user and a password", c.Auth)
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Send sends a mail. It returns delivery.ErrRefused if the server will never accept
// it, and delivery.ErrUnanswered if the server may have accepted it.
func (s *Client) Send(ctx context.Context, m delivery.Mail) error {
	msg, err := m.Encode()
	if err != nil {
		return err
	}
	l, err := s.open(ctx)
	if err != nil {
		return fmt.Errorf("cannot connect to the mail server %s: %w", s.c.Address, &cleanError{err})
	}
	e := envelope{msg, m.Handover}
	used := l.mails > 0 // read now: after sending, another mail may use the connection
	err = s.sendOver(ctx, l, e)
	if used && closedByServer(err) {
		// The server closed the idle connection before anything was sent over it.
		if l, err = s.dial(ctx); err != nil {
			return fmt.Errorf("cannot connect to the mail server %s: %w", s.c.Address, &cleanError{err})
		}
		err = s.sendOver(ctx, l, e)
	}
	if err != nil {
		return fmt.Errorf("the mail server %s did not accept the mail: %w", s.c.Address, &cleanError{err})
	}
	return nil
}

// Check connects to the server and disconnects.
func (s *Client) Check(ctx context.Context) error {
	l, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot connect to the mail server %s: %w", s.c.Address, &cleanError{err})
	}
	l.quit()
	return nil
}

// Close closes the idle connections.
func (s *Client) Close() error {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, l := range idle {
		s.quitting.Go(l.quit)
	}
	s.quitting.Wait()
	return nil
}

// open returns an idle connection that still works, or a new one.
func (s *Client) open(ctx context.Context) (*connection, error) {
	for {
		l := s.takeIdle()
		if l == nil {
			return s.dial(ctx)
		}
		if time.Since(l.since) > idleLimit {
			s.quitLater(l)
			continue
		}
		return l, nil
	}
}

func (s *Client) takeIdle() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	l := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return l
}

func (s *Client) putIdle(l *connection) {
	l.since = time.Now()
	s.mu.Lock()
	if !s.closed && l.mails < maxMails && len(s.idle) < maxIdle {
		s.idle = append(s.idle, l)
		l = nil
	}
	s.mu.Unlock()
	if l != nil {
		s.quitLater(l)
	}
}

// quitLater closes a connection without making the caller wait: the result of a mail
// must be stored at once.
func (s *Client) quitLater(l *connection) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.quitting.Go(l.quit)
	}
	s.mu.Unlock()
	if closed {
		_ = l.conn.Close() // nothing waits for the answer to QUIT any more
	}
}

// quit sends QUIT to the server and ignores errors.
func (l *connection) quit() {
	_ = l.conn.SetDeadline(time.Now().Add(quitLimit))
	_ = l.client.Quit()
	_ = l.conn.Close()
}
