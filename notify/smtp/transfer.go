package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"time"
	"unicode"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/dewrun/dew/notify/delivery"
)

// dial opens a connection that is ready for a mail.
func (s *Client) dial(ctx context.Context) (*connection, error) {
	dialing, cancel := context.WithTimeout(ctx, s.c.Timeouts.Connect)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", s.c.Address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l := &connection{conn: conn}
	if err := s.greet(l); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// greet starts the session: greeting, EHLO, TLS and authentication.
func (s *Client) greet(l *connection) (err error) {
	limit := s.c.Timeouts.Command
	raw := l.conn
	if s.c.TLS == TLSImplicit {
		l.conn = tls.Client(raw, s.trust)
	}
	if err := raw.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if l.client, err = smtp.NewClient(l.conn, s.host); err != nil {
		return err
	}
	if err := l.within(limit, func() error { return l.client.Hello(s.c.Hello) }); err != nil {
		return err
	}
	encrypted := s.c.TLS == TLSImplicit
	if s.c.TLS != TLSImplicit && s.c.TLS != TLSNone {
		offered, _ := l.client.Extension("STARTTLS")
		switch {
		case offered:
			if err := l.within(limit, func() error { return l.client.StartTLS(s.trust) }); err != nil {
				return fmt.Errorf("STARTTLS failed: %w", err)
			}
			encrypted = true
		case s.c.TLS == TLSStart:
			return errors.New("the server does not offer STARTTLS")
		case s.c.Auth != AuthNone && s.c.Auth != "":
			s.warnPlain.Do(func() {
				s.c.Logger.Warn("mails are sent unencrypted: the mail server does not offer STARTTLS", "address", s.c.Address)
			})
		}
	}
	return s.authenticate(l, encrypted)
}

// authenticate logs in, if the settings say so.
func (s *Client) authenticate(l *connection, encrypted bool) error {
	if s.c.Auth == AuthNone || s.c.Auth == "" {
		return nil
	}
	if problem := s.cannotAuthenticate(l, encrypted); problem != "" {
		if !s.c.AuthOptional {
			return errors.New(problem)
		}
		s.warnOnce.Do(func() {
			s.c.Logger.Warn("mails are sent without authentication", "address", s.c.Address, "reason", problem)
		})
		return nil
	}
	a := smtp.CRAMMD5Auth(s.c.User, s.c.Password)
	if s.c.Auth == AuthPlain {
		a = smtp.PlainAuth("", s.c.User, s.c.Password, s.host, true) // cannotAuthenticate has checked that it is safe
	}
	if err := l.within(s.c.Timeouts.Command, func() error { return l.client.Auth(a) }); err != nil {
		return fmt.Errorf("SMTP AUTH failed: %w", oneLine(err))
	}
	return nil
}

// cannotAuthenticate returns the reason why the configured authentication is not
// possible over a connection, or "".
func (s *Client) cannotAuthenticate(l *connection, encrypted bool) string {
	offered, mechanisms := l.client.Extension("AUTH")
	mechanisms = clean(mechanisms)
	switch {
	case !offered:
		return "the server does not support SMTP AUTH"
	case !hasMechanism(mechanisms, string(s.c.Auth)):
		return fmt.Sprintf("the server does not support SMTP AUTH with %s, only with: %s", s.c.Auth, mechanisms)
	case s.c.User == "" || s.c.Password == "":
		return "the user or the password is not set"
	case s.c.Auth == AuthPlain && !encrypted && !loopback(s.host):
		return "the connection is not encrypted, and plain authentication would send the password over it"
	}
	return ""
}

func hasMechanism(offered, name string) bool {
	for m := range strings.FieldsSeq(offered) {
		if strings.EqualFold(m, name) {
			return true
		}
	}
	return false
}

// within runs one step of a session with a time limit.
func (l *connection) within(limit time.Duration, step func() error) error {
	if err := l.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return step()
}

// envelope is a mail on its way to the server.
type envelope struct {
	msg      *gomail.Msg
	handover delivery.Handover // can be nil
}

// The steps of a mail, for errors.
const (
	stepMail    = "MAIL FROM"
	stepRcpt    = "RCPT TO"
	stepData    = "DATA"
	stepContent = "the content"
	stepAccept  = "the end of the content"
)

// stepError is the error of one step.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string {
	if e.code() != 0 {
		return fmt.Sprintf("answer to %s: %v", e.step, oneLine(e.err))
	}
	return fmt.Sprintf("no answer to %s: %v", e.step, e.err)
}

// Unwrap returns what the error means for the mail, and its cause.
func (e *stepError) Unwrap() []error {
	switch {
	case e.final():
		return []error{delivery.ErrRefused, e.err}
	case e.step == stepAccept && e.code() == 0:
		return []error{delivery.ErrUnanswered, e.err}
	}
	return []error{e.err}
}

// code returns the code of the server's answer, or 0 if there was none.
func (e *stepError) code() int {
	if answer, ok := errors.AsType[*textproto.Error](e.err); ok {
		return answer.Code
	}
	return 0
}

// final reports whether the server refused this mail for good. A refused sender concerns
// all mails and is a matter of the settings, so dewd tries again; except if the mail is
// too large.
func (e *stepError) final() bool {
	const firstFinal, tooLarge = 500, 552
	switch e.step {
	case stepMail:
		return e.code() == tooLarge
	case stepRcpt, stepData, stepAccept:
		return e.code() >= firstFinal
	}
	return false
}

// oneLine returns an error with the server's answer as it is, in one line.
func oneLine(err error) error {
	answer, ok := errors.AsType[*textproto.Error](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%d %s", answer.Code, strings.Join(strings.Fields(answer.Msg), " "))
}

// cleanError is an error whose text has no control characters. A mail server chooses a
// part of the text, and terminals and logs must not interpret it.
type cleanError struct{ err error }

func (e *cleanError) Error() string { return clean(e.err.Error()) }

// Unwrap returns the error with its kind.
func (e *cleanError) Unwrap() error { return e.err }

// clean replaces the control characters and the invalid UTF-8 of a text.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// sendOver sends over a connection and keeps it open for the next mail, if its state is
// known.
func (s *Client) sendOver(ctx context.Context, l *connection, e envelope) error {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() }) // the only way to abort a transfer
	defer stop()
	err := s.transfer(l, e)
	if err == nil {
		l.mails++
		s.putIdle(l)
		return nil
	}
	const closing = 421
	if step, ok := errors.AsType[*stepError](err); ok && step.code() != 0 && step.code() != closing &&
		l.within(quitLimit, l.client.Reset) == nil {
		l.mails++
		s.putIdle(l)
		return err
	}
	_ = l.conn.Close() // it may be in the middle of a command
	return err
}

// transfer sends the commands of one mail, each with its own time limit.
func (s *Client) transfer(l *connection, e envelope) error {
	from, err := e.msg.GetSender(false)
	if err != nil {
		return err
	}
	to, err := e.msg.GetRecipients()
	if err != nil {
		return err
	}
	limits := s.c.Timeouts
	if err := l.within(limits.Command, func() error { return l.client.Mail(from) }); err != nil {
		return &stepError{stepMail, err}
	}
	for _, one := range to {
		if err := l.within(limits.Command, func() error { return l.client.Rcpt(one) }); err != nil {
			return &stepError{stepRcpt, err}
		}
	}
	if e.handover != nil {
		if err := e.handover.BeforeData(); err != nil {
			return err
		}
	}
	var w io.WriteCloser
	if err := l.within(limits.Data, func() error { w, err = l.client.Data(); return err }); err != nil {
		return &stepError{stepData, err}
	}
	if _, err := e.msg.WriteTo(blockWriter{w, l, limits.Block}); err != nil {
		return &stepError{stepContent, err}
	}
	if err := l.within(limits.Accept, w.Close); err != nil {
		return &stepError{stepAccept, err}
	}
	return nil
}

// blockWriter writes every block with its own time limit.
type blockWriter struct {
	w     io.Writer
	l     *connection
	limit time.Duration
}

func (b blockWriter) Write(p []byte) (n int, err error) {
	err = b.l.within(b.limit, func() error { n, err = b.w.Write(p); return err })
	return n, err
}

// closedByServer reports whether the server closed the connection before it received a
// mail.
func closedByServer(err error) bool {
	const closing = 421
	e, ok := errors.AsType[*stepError](err)
	return ok && e.step == stepMail && (e.code() == 0 || e.code() == closing)
}
