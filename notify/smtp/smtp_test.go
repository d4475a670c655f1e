package smtp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

func sampleMail(n int) delivery.Mail {
	return delivery.Mail{
		ID: fmt.Sprintf("id-%d", n), From: "Dew <no-reply@dew.localhost>", To: fmt.Sprintf("user-%d@example.com", n),
		Subject: "Hello", Text: "text", HTML: "<p>html</p>", Client: "mailer", Kind: "news",
		Received: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Sent: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	}
}

func newSMTP(t testing.TB, c Config) *Client {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Mails arrive with every TLS mode and authentication method; the test checks the
// server's view.
func TestSMTPModes(t *testing.T) {
	cert, trust := certificate(t)
	users := map[string]string{"dew": "secret"}
	for _, tt := range []struct {
		name   string
		server *mailServer
		client Config
		tls    bool
		user   string
		fails  string // a part of the error
	}{
		{name: "plain talk", client: Config{TLS: TLSNone}},
		{name: "if offered: not offered", client: Config{}},
		{name: "if offered: offered", server: &mailServer{cert: cert}, client: Config{Trust: trust}, tls: true},
		{name: "starttls", server: &mailServer{cert: cert}, client: Config{TLS: TLSStart, Trust: trust}, tls: true},
		{name: "starttls: not offered", client: Config{TLS: TLSStart, Trust: trust}, fails: "STARTTLS"},
		{name: "tls", server: &mailServer{cert: cert, direct: true}, client: Config{TLS: TLSImplicit, Trust: trust}, tls: true},
		{name: "unknown authority", server: &mailServer{cert: cert}, client: Config{TLS: TLSStart}, fails: "certificate"},
		{name: "tls: unknown authority", server: &mailServer{cert: cert, direct: true}, client: Config{TLS: TLSImplicit}, fails: "certificate"},
		{name: "plain", server: &mailServer{cert: cert, users: users}, client: Config{Trust: trust, Auth: AuthPlain, User: "dew", Password: "secret"}, tls: true, user: "dew"},
		{name: "plain over tls", server: &mailServer{cert: cert, direct: true, users: users}, client: Config{TLS: TLSImplicit, Trust: trust, Auth: AuthPlain, User: "dew", Password: "secret"}, tls: true, user: "dew"},
		{name: "plain: wrong password", server: &mailServer{cert: cert, users: users}, client: Config{Trust: trust, Auth: AuthPlain, User: "dew", Password: "guess"}, fails: "AUTH failed"},
		{name: "cram-md5", server: &mailServer{cert: cert, users: users}, client: Config{Trust: trust, Auth: AuthCRAMMD5, User: "dew", Password: "secret"}, tls: true, user: "dew"},
		{name: "cram-md5: wrong secret", server: &mailServer{users: users}, client: Config{Auth: AuthCRAMMD5, User: "dew", Password: "guess"}, fails: "AUTH failed"},
		{name: "nobody logs in", server: &mailServer{users: users}, client: Config{}, fails: "did not accept the mail"},
		{name: "server without AUTH", client: Config{Auth: AuthCRAMMD5, User: "dew", Password: "secret"}, fails: "does not support SMTP AUTH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := cmp.Or(tt.server, &mailServer{}).start(t)
			tt.client.Address = srv.Address
			err := newSMTP(t, tt.client).Send(t.Context(), sampleMail(1))
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("Send = %v, want an error with %q", err, tt.fails)
				}
				if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "guess") {
					t.Errorf("the error tells the password: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Send = %v", err)
			}
			got := srv.all()
			if len(got) != 1 {
				t.Fatalf("mails = %d, want 1", len(got))
			}
			if m := got[0]; m.From != "no-reply@dew.localhost" || m.To != "user-1@example.com" || m.TLS != tt.tls || m.User != tt.user {
				t.Errorf("mail = from %s to %s, TLS %t, user %q; want TLS %t, user %q", m.From, m.To, m.TLS, m.User, tt.tls, tt.user)
			}
		})
	}
}

func TestNewSMTPRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Config
		want string
	}{
		{"no address", Config{}, "mail.example.com:587"},
		{"no port", Config{Address: "mail.example.com"}, "mail.example.com:587"},
		{"port 0", Config{Address: "mail.example.com:0"}, "mail.example.com:587"},
		{"tls", Config{Address: "m:25", TLS: "ssl"}, `not "ssl"`},
		{"auth", Config{Address: "m:25", Auth: "login"}, `not "login"`},
		{"no password", Config{Address: "m:25", Auth: AuthPlain, User: "u"}, "requires a user and a password"},
		{"password in the open", Config{Address: "m:25", TLS: TLSNone, Auth: AuthPlain, User: "u", Password: "p"}, "without TLS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewSMTP = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// One connection sends many mails, but not more than maxMails, even if several
// goroutines send at once.
func TestSMTPReusesConnections(t *testing.T) {
	srv := (&mailServer{}).start(t)
	s := newSMTP(t, Config{Address: srv.Address})
	for n := range maxMails + 1 {
		if err := s.Send(t.Context(), sampleMail(n)); err != nil {
			t.Fatal(err)
		}
	}
	if srv.conns != 2 {
		t.Errorf("connections = %d, want 2 for %d mails", srv.conns, maxMails+1)
	}
	var senders sync.WaitGroup
	for n := range 20 {
		senders.Go(func() {
			if err := s.Send(t.Context(), sampleMail(1000+n)); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	if got := len(srv.all()); got != maxMails+21 {
		t.Errorf("mails = %d, want %d", got, maxMails+21)
	}
}

// A server that closed an idle connection costs no attempt.
func TestSMTPServerHungUp(t *testing.T) {
	srv := (&mailServer{}).start(t)
	s := newSMTP(t, Config{Address: srv.Address})
	for n := range 3 {
		if err := s.Send(t.Context(), sampleMail(n)); err != nil {
			t.Fatalf("mail %d: %v", n, err)
		}
		srv.closeConnections()
	}
	if got := len(srv.all()); got != 3 {
		t.Errorf("mails = %d, want 3", got)
	}
}

// A refusal of the server is an error with its message, and the next mail is sent.
func TestSMTPRefusals(t *testing.T) {
	srv := &mailServer{}
	next := error(errBusy)
	srv.refuse = func(string) error { return next }
	srv.start(t)
	s := newSMTP(t, Config{Address: srv.Address})
	if err := s.Send(t.Context(), sampleMail(1)); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("Send = %v, want the server's words", err)
	}
	next = errNobody
	if err := s.Send(t.Context(), sampleMail(1)); err == nil || !strings.Contains(err.Error(), "nobody of this name") {
		t.Errorf("Send = %v, want the server's words", err)
	}
	next = nil
	if err := s.Send(t.Context(), sampleMail(1)); err != nil {
		t.Errorf("Send = %v", err)
	}
	if got := len(srv.all()); got != 1 {
		t.Errorf("mails = %d, want 1", got)
	}
}

func TestSMTPConnectionRefused(t *testing.T) {
	s := newSMTP(t, Config{Address: "127.0.0.1:1"}) // no test ever listens on that port
	if err := s.Send(t.Context(), sampleMail(1)); err == nil || !strings.Contains(err.Error(), "cannot connect to the mail server") {
		t.Errorf("Send = %v", err)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("Check of nobody = nil")
	}
}

// A server that does not respond does not block the exit.
func TestSMTPSilentServer(t *testing.T) {
	l := testkit.Listen(t)
	s := newSMTP(t, Config{Address: l.Addr().String()})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := s.Send(ctx, sampleMail(1)); err == nil {
		t.Error("Send = nil")
	}
	if ctx.Err() == nil {
		t.Error("Send gave up before it was told to")
	}
	quick := newSMTP(t, Config{Address: l.Addr().String(), Timeouts: Timeouts{Command: 20 * time.Millisecond}})
	if err := quick.Send(t.Context(), sampleMail(1)); err == nil {
		t.Error("Send = nil")
	}
}

func TestSMTPCheck(t *testing.T) {
	cert, trust := certificate(t)
	srv := (&mailServer{cert: cert}).start(t)
	if err := newSMTP(t, Config{Address: srv.Address, TLS: TLSStart, Trust: trust}).Check(t.Context()); err != nil {
		t.Errorf("Check = %v", err)
	}
	if err := newSMTP(t, Config{Address: srv.Address, TLS: TLSStart, Trust: &tls.Config{MinVersion: tls.VersionTLS12}}).Check(t.Context()); err == nil {
		t.Error("Check of a server that nobody trusts = nil")
	}
}

// The errors distinguish a mail that can never be sent from one that can be sent later.
func TestSMTPUndeliverable(t *testing.T) {
	srv := (&mailServer{}).start(t)
	s := newSMTP(t, Config{Address: srv.Address})
	m := sampleMail(1)
	m.To = "nobody"
	if err := s.Send(t.Context(), m); !errors.Is(err, delivery.ErrUndeliverable) {
		t.Errorf("Send = %v, want ErrUndeliverable", err)
	}
}
