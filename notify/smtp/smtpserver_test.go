package smtp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // CRAM-MD5 is what its name says
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/dewrun/dew/testkit"
)

// mailServer is a real SMTP server that stores the mails it receives.
type mailServer struct {
	t       testing.TB
	Address string

	// Its behaviour.
	users  map[string]string // name to password; nil: no login required
	cert   *tls.Certificate  // nil: no TLS
	direct bool              // TLS from the start of the connection
	open   bool              // accepts mails without a login
	refuse func(to string) error

	mu    sync.Mutex // guards the fields below
	mails []receivedMail
	conns int
	live  map[net.Conn]bool
}

// receivedMail is a mail that the server received.
type receivedMail struct {
	From, To string
	User     string // the user who logged in
	TLS      bool
	Raw      []byte
}

func (s *mailServer) start(t testing.TB) *mailServer {
	t.Helper()
	s.t, s.live = t, map[net.Conn]bool{}
	l := testkit.Listen(t)
	s.Address = l.Addr().String()
	srv := smtp.NewServer(s)
	srv.Domain, srv.AllowInsecureAuth = "localhost", true
	srv.ErrorLog = silentLogger{}
	if s.cert != nil {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*s.cert}, MinVersion: tls.VersionTLS12}
	}
	if s.direct {
		l = tls.NewListener(l, srv.TLSConfig)
		srv.TLSConfig = nil
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	// srv.Close does not close a listener that it does not serve yet.
	t.Cleanup(func() { _ = srv.Close(); _ = l.Close(); <-done })
	return s
}

type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}
func (silentLogger) Println(...any)        {}

// NewSession implements smtp.Backend.
func (s *mailServer) NewSession(c *smtp.Conn) (smtp.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live[c.Conn()] {
		s.conns++
		s.live[c.Conn()] = true
	}
	return &mailSession{s: s, c: c}, nil
}

func (s *mailServer) all() []receivedMail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]receivedMail(nil), s.mails...)
}

// closeConnections closes all connections.
func (s *mailServer) closeConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		_ = c.Close()
	}
}

type mailSession struct {
	s    *mailServer
	c    *smtp.Conn
	user string
	receivedMail
}

func (m *mailSession) AuthMechanisms() []string {
	if m.s.users == nil {
		return nil
	}
	return []string{sasl.Plain, "CRAM-MD5"}
}

func (m *mailSession) Auth(mech string) (sasl.Server, error) {
	if mech == "CRAM-MD5" {
		return &cramServer{m: m, challenge: "<1.2@localhost>"}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error {
		if want, ok := m.s.users[user]; !ok || want != password {
			return smtp.ErrAuthFailed
		}
		m.user = user
		return nil
	}), nil
}

// cramServer checks a client's response to a challenge.
type cramServer struct {
	m         *mailSession
	challenge string
	asked     bool
}

func (c *cramServer) Next(response []byte) ([]byte, bool, error) {
	if !c.asked {
		c.asked = true
		return []byte(c.challenge), false, nil
	}
	user, digest, _ := strings.Cut(string(response), " ")
	h := hmac.New(md5.New, []byte(c.m.s.users[user]))
	h.Write([]byte(c.challenge))
	if got, err := hex.DecodeString(digest); err != nil || !hmac.Equal(got, h.Sum(nil)) {
		return nil, true, smtp.ErrAuthFailed
	}
	c.m.user = user
	return nil, true, nil
}

func (m *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	if m.s.users != nil && !m.s.open && m.user == "" {
		return smtp.ErrAuthRequired
	}
	m.receivedMail = receivedMail{From: from}
	return nil
}

func (m *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	m.To = to
	if m.s.refuse != nil {
		return m.s.refuse(to)
	}
	return nil
}

func (m *mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	_, m.TLS = m.c.TLSConnectionState()
	m.Raw, m.User = raw, m.user
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.mails = append(m.s.mails, m.receivedMail)
	return nil
}

func (m *mailSession) Reset() {}

func (m *mailSession) Logout() error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	delete(m.s.live, m.c.Conn())
	return nil
}

// certificate returns a certificate for a server at 127.0.0.1, and a TLS configuration
// that trusts it.
func certificate(t testing.TB) (*tls.Certificate, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(made)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

var errBusy = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "busy"}

var errNobody = &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "nobody of this name"}
