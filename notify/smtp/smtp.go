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

// TLSUse is how a connection to the mail server is made safe.
type TLSUse string

// The ways to use TLS.
const (
	TLSIfOffered   TLSUse = "if-offered" // STARTTLS where the server can, else without
	TLSStart       TLSUse = "starttls"   // STARTTLS, or no mail
	TLSFromOutside TLSUse = "tls"        // before the first word
	TLSNone        TLSUse = "none"
)

// AuthUse is how dew tells the mail server who it is.
type AuthUse string

// The ways to authenticate.
const (
	AuthNone    AuthUse = "none"
	AuthPlain   AuthUse = "plain" // over TLS only, or on the machine itself
	AuthCRAMMD5 AuthUse = "cram-md5"
)

// Config is where mails go.
type Config struct {
	Address  string  // host:port
	TLS      TLSUse  // empty: TLSIfOffered
	Auth     AuthUse // empty: AuthNone
	User     string
	Password string        // the secret of cram-md5, too
	Trust    *tls.Config   // nil: the machine's certificates
	Hello    string        // our name; empty: localhost
	Timeout  time.Duration // of one mail; 0: 15 s
}

const (
	defaultSMTPTimeout = 15 * time.Second
	// idleLimit is how long a connection waits for the next mail; servers wait
	// longer.
	idleLimit = 10 * time.Second
	// maxIdle is how many of them wait.
	maxIdle = delivery.DefaultWorkers
	// maxMails is how many mails one connection carries: some servers count.
	maxMails = 100
)

// Client is a Post that hands mails to a mail server. It keeps connections open for
// the next mail.
type Client struct {
	c     Config
	host  string
	trust *tls.Config
	opts  []gomail.Option

	mu     sync.Mutex // guards what follows
	idle   []*line
	closed bool
}

// line is an open connection to the mail server.
type line struct {
	conn   net.Conn
	sender *gomail.Client
	client *smtp.Client
	mails  int
	since  time.Time // of the last mail
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
		// A mail is four questions. The other two tell nothing new.
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
		return "", 0, fmt.Errorf("cannot send mails: the mail server must be like mail.example.com:587, not %q", address)
	}
	return host, port, nil
}

// trust is whom to believe that it is the mail server.
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
	case TLSFromOutside:
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
			return nil, errors.New("cannot send mails: plain authentication without TLS would show the password to everybody on the way (use starttls, tls or cram-md5)")
		}
		opts = append(opts, gomail.WithSMTPAuth(gomail.SMTPAuthPlain))
	case AuthCRAMMD5:
		opts = append(opts, gomail.WithSMTPAuth(gomail.SMTPAuthCramMD5))
	default:
		return nil, fmt.Errorf("cannot send mails: authentication must be none, plain or cram-md5, not %q", c.Auth)
	}
	if c.User == "" || c.Password == "" {
		return nil, fmt.Errorf("cannot send mails: %s authentication needs a user and a password", c.Auth)
	}
	return append(opts, gomail.WithUsername(c.User), gomail.WithPassword(c.Password)), nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Send hands a mail over.
func (s *Client) Send(ctx context.Context, m delivery.Mail) error {
	msg, err := m.Encode()
	if err != nil {
		return err
	}
	l, err := s.open(ctx)
	if err != nil {
		return fmt.Errorf("cannot talk to the mail server %s: %w", s.c.Address, err)
	}
	used := l.mails > 0 // read now: once it is sent the line may be another mail's
	err = s.sendOver(ctx, l, msg)
	if used && hungUp(err) {
		// It had waited too long for the server's taste, and carried nothing yet.
		if l, err = s.dial(ctx); err != nil {
			return fmt.Errorf("cannot talk to the mail server %s: %w", s.c.Address, err)
		}
		err = s.sendOver(ctx, l, msg)
	}
	if err != nil {
		return fmt.Errorf("the mail server %s did not take the mail: %w", s.c.Address, err)
	}
	return nil
}

// sendOver sends over a line and keeps it for the next mail.
func (s *Client) sendOver(ctx context.Context, l *line, msg *gomail.Msg) error {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() }) // nothing else ends a talk
	defer stop()
	if err := l.sender.SendWithSMTPClient(l.client, msg); err != nil {
		_ = l.conn.Close() // it is in the midst of something
		return err
	}
	l.mails++
	s.keep(l)
	return nil
}

// hungUp tells a server that ended the talk before it heard of a mail.
func hungUp(err error) bool {
	var e *gomail.SendError
	if !errors.As(err, &e) {
		return false
	}
	const closing = 421
	return e.Reason == gomail.ErrConnCheck || e.Reason == gomail.ErrSMTPMailFrom && (e.ErrorCode() == 0 || e.ErrorCode() == closing)
}

// Check connects and says goodbye.
func (s *Client) Check(ctx context.Context) error {
	l, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot talk to the mail server %s: %w", s.c.Address, err)
	}
	return l.client.Quit()
}

// Close ends the connections that wait.
func (s *Client) Close() error {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, l := range idle {
		l.end()
	}
	return nil
}

// open takes a connection that waits and still answers, or makes one.
func (s *Client) open(ctx context.Context) (*line, error) {
	for {
		l := s.take()
		if l == nil {
			return s.dial(ctx)
		}
		if time.Since(l.since) > idleLimit {
			l.end()
			continue
		}
		return l, nil
	}
}

// dial makes a connection up to the point where a mail may follow.
func (s *Client) dial(ctx context.Context) (_ *line, err error) {
	l, stop := &line{}, func() bool { return true }
	connect := func(dialing context.Context, network, address string) (c net.Conn, err error) {
		if s.c.TLS == TLSFromOutside {
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
		_ = l.conn.Close() // the library leaves it open
	}
	return l, err
}

func (s *Client) take() *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	l := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return l
}

func (s *Client) keep(l *line) {
	l.since = time.Now()
	s.mu.Lock()
	if !s.closed && l.mails < maxMails && len(s.idle) < maxIdle {
		s.idle = append(s.idle, l)
		l = nil
	}
	s.mu.Unlock()
	if l != nil {
		l.end()
	}
}

// end says goodbye to the server; whether it hears that does not matter.
func (l *line) end() {
	_ = l.client.Quit()
	_ = l.conn.Close()
}
