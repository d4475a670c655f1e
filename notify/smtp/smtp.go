package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"
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
	Password string        // also the secret of cram-md5
	Trust    *tls.Config   // nil: the machine's certificates
	Hello    string        // name of this host in HELO (empty: localhost)
	Timeout  time.Duration // for one mail (0: 15 s)
}

const (
	defaultSMTPTimeout = 15 * time.Second
	// idleLimit is how long a connection waits for the next mail. Servers wait longer.
	idleLimit = 10 * time.Second
	// maxIdle is the maximum number of idle connections.
	maxIdle = delivery.DefaultWorkers
	// maxMails is the number of mails per connection, because some servers limit it.
	maxMails = 100
)

// Client is a Mailer that sends mails to a mail server. It leaves connections open for
// the next mail.
type Client struct {
	c     Config
	host  string
	trust *tls.Config
	opts  []gomail.Option

	mu     sync.Mutex // guards the fields below
	idle   []*connection
	closed bool
}

// connection is an open connection to the mail server.
type connection struct {
	conn   net.Conn
	sender *gomail.Client
	client *smtp.Client
	mails  int
	since  time.Time // time of the last mail
}

// New checks c. It does not connect.
func New(c Config) (*Client, error) {
	host, port, err := splitAddress(c.Address)
	if err != nil {
		return nil, err
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultSMTPTimeout
	}
	if c.Hello == "" {
		c.Hello = "localhost"
	}
	opts, err := c.options(host)
	if err != nil {
		return nil, err
	}
	s := &Client{c: c, host: host, trust: c.trust(host)}
	s.opts = append(opts, gomail.WithTLSConfig(s.trust),
		gomail.WithPort(port), gomail.WithTimeout(c.Timeout), gomail.WithHELO(c.Hello),
		// A mail needs four commands. NOOP and RSET are not necessary.
		gomail.WithoutNoop(), gomail.WithoutRset())
	if _, err := gomail.NewClient(host, s.opts...); err != nil {
		return nil, fmt.Errorf("cannot use the mail server %s: %w", c.Address, err)
	}
	return s, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || host == "" || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("cannot send mails: the mail server must have the form mail.example.com:587, not %q", address)
	}
	return host, port, nil
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

func (c Config) options(host string) (opts []gomail.Option, err error) {
	switch c.TLS {
	case TLSIfOffered, "":
		opts = append(opts, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	case TLSStart:
		opts = append(opts, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case TLSImplicit:
		opts = append(opts, gomail.WithSSL())
	case TLSNone:
		opts = append(opts, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		return nil, fmt.Errorf("cannot send mails: TLS must be if-offered, starttls, tls or none, not %q", c.TLS)
	}
	switch c.Auth {
	case AuthNone, "":
		return opts, nil
	case AuthPlain:
		if c.TLS == TLSNone && !loopback(host) {
			return nil, errors.New("cannot send mails: plain authentication without TLS would send the password unencrypted; use starttls, tls or cram-md5")
		}
		opts = append(opts, gomail.WithSMTPAuth(gomail.SMTPAuthPlain))
	case AuthCRAMMD5:
		opts = append(opts, gomail.WithSMTPAuth(gomail.SMTPAuthCramMD5))
	default:
		return nil, fmt.Errorf("cannot send mails: authentication must be none, plain or cram-md5, not %q", c.Auth)
	}
	if c.User == "" || c.Password == "" {
		return nil, fmt.Errorf("cannot send mails: %s authentication requires a user and a password", c.Auth)
	}
	return append(opts, gomail.WithUsername(c.User), gomail.WithPassword(c.Password)), nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Send sends a mail.
func (s *Client) Send(ctx context.Context, m delivery.Mail) error {
	msg, err := m.Encode()
	if err != nil {
		return err
	}
	l, err := s.open(ctx)
	if err != nil {
		return fmt.Errorf("cannot connect to the mail server %s: %w", s.c.Address, err)
	}
	used := l.mails > 0 // read now: after sending, another mail may use the connection
	err = s.sendOver(ctx, l, msg)
	if used && closedByServer(err) {
		// The server closed the idle connection before anything was sent over it.
		if l, err = s.dial(ctx); err != nil {
			return fmt.Errorf("cannot connect to the mail server %s: %w", s.c.Address, err)
		}
		err = s.sendOver(ctx, l, msg)
	}
	if err != nil {
		return fmt.Errorf("the mail server %s did not accept the mail: %w", s.c.Address, err)
	}
	return nil
}

// sendOver sends over a connection and keeps it open for the next mail.
func (s *Client) sendOver(ctx context.Context, l *connection, msg *gomail.Msg) error {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() }) // the only way to abort a transfer
	defer stop()
	if err := l.sender.SendWithSMTPClient(l.client, msg); err != nil {
		_ = l.conn.Close() // it may be in the middle of a command
		return err
	}
	l.mails++
	s.putIdle(l)
	return nil
}

// closedByServer reports whether the server closed the connection before it received a
// mail.
func closedByServer(err error) bool {
	var e *gomail.SendError
	if !errors.As(err, &e) {
		return false
	}
	const closing = 421
	return e.Reason == gomail.ErrConnCheck || e.Reason == gomail.ErrSMTPMailFrom && (e.ErrorCode() == 0 || e.ErrorCode() == closing)
}

// Check connects to the server and disconnects.
func (s *Client) Check(ctx context.Context) error {
	l, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot connect to the mail server %s: %w", s.c.Address, err)
	}
	return l.client.Quit()
}

// Close closes the idle connections.
func (s *Client) Close() error {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, l := range idle {
		l.quit()
	}
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
			l.quit()
			continue
		}
		return l, nil
	}
}

// dial opens a connection that is ready for a mail.
func (s *Client) dial(ctx context.Context) (_ *connection, err error) {
	l, stop := &connection{}, func() bool { return true }
	connect := func(dialing context.Context, network, address string) (c net.Conn, err error) {
		if s.c.TLS == TLSImplicit {
			c, err = (&tls.Dialer{Config: s.trust}).DialContext(dialing, network, address)
		} else {
			c, err = (&net.Dialer{}).DialContext(dialing, network, address)
		}
		if err != nil {
			return nil, err
		}
		l.conn = c
		stop = context.AfterFunc(ctx, func() { _ = c.Close() })
		return c, nil
	}
	l.sender, err = gomail.NewClient(s.host, append(slices.Clip(s.opts), gomail.WithDialContextFunc(connect))...)
	if err != nil {
		return nil, err
	}
	l.client, err = l.sender.DialToSMTPClientWithContext(ctx)
	stop()
	if err != nil && l.conn != nil {
		_ = l.conn.Close() // the library does not close it
	}
	return l, err
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
		l.quit()
	}
}

// quit sends QUIT to the server and ignores errors.
func (l *connection) quit() {
	_ = l.client.Quit()
	_ = l.conn.Close()
}
