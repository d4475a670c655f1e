package route

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour // short enough for all clients
	leafRenewal   = 30 * 24 * time.Hour // before it expires
	clockSkew     = time.Hour
	maxLeaves     = 1024
)

// GivenCertificate returns the TLS configuration for a certificate in two files, which
// are read again after a change.
func GivenCertificate(certFile, keyFile string) (*tls.Config, error) {
	g := &given{certFile: certFile, keyFile: keyFile}
	if _, err := g.certificate(nil); err != nil {
		return nil, err
	}
	return serverTLS(g.certificate), nil
}

func serverTLS(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: get}
}

// given is a certificate in files.
type given struct {
	certFile, keyFile string

	mu   sync.Mutex // guards the fields below
	read time.Time  // modification time of the certificate's file
	cert *tls.Certificate
}

// certificate returns the certificate in the files, or the last one that could be read.
func (g *given) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	info, err := os.Stat(g.certFile)
	if err == nil && g.cert != nil && info.ModTime().Equal(g.read) {
		return g.cert, nil
	}
	cert, lerr := tls.LoadX509KeyPair(g.certFile, g.keyFile)
	if err := errors.Join(err, lerr); err != nil {
		if g.cert != nil {
			return g.cert, nil // half of a renewal: the other file follows soon
		}
		return nil, fmt.Errorf("cannot load the certificate: %w", err)
	}
	g.cert, g.read = &cert, info.ModTime()
	return g.cert, nil
}

// Authority signs certificates for the hosts of routes. A client that trusts its
// certificate trusts them all.
type Authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	named func(host string) bool
	now   func() time.Time

	mu     sync.Mutex // guards leaves
	leaves map[string]*tls.Certificate
}

// OpenAuthority opens the authority in a folder, and creates it on the first start:
// router-ca.pem is for clients, router-ca.key is secret. It signs for the hosts for
// which named returns true.
func OpenAuthority(dir string, named func(host string) bool) (*Authority, error) {
	a := &Authority{named: named, now: time.Now, leaves: map[string]*tls.Certificate{}}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "router-ca.pem"), filepath.Join(dir, "router-ca.key"))
	if errors.Is(err, os.ErrNotExist) {
		return a, a.create(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot load the router's certificate authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("cannot load the router's certificate authority: router-ca.key is not an ECDSA key")
	}
	a.cert, a.key = pair.Leaf, key
	return a, nil
}

// Config returns the TLS configuration of a listener with certificates of the
// authority.
func (a *Authority) Config() *tls.Config {
	return serverTLS(func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.leaf(hello.ServerName) })
}

func (a *Authority) create(dir string) (err error) {
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return fmt.Errorf("cannot create the router's certificate authority: %w", err)
	}
	t := a.template("dew router authority", authorityLife)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, a.key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("cannot create the router's certificate authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("cannot create the router's certificate authority: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return fmt.Errorf("cannot create the router's certificate authority: %w", err)
	}
	// Write the key first: without a certificate, the next start creates both again.
	return errors.Join(
		writePEM(filepath.Join(dir, "router-ca.key"), "PRIVATE KEY", secret, 0o600),
		writePEM(filepath.Join(dir, "router-ca.pem"), "CERTIFICATE", der, 0o644),
	)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// leaf returns the certificate for a host. It is created on first use.
func (a *Authority) leaf(host string) (*tls.Certificate, error) {
	host = hostKey(host)
	if host == "" || !a.named(host) {
		return nil, fmt.Errorf("no route uses the host %q", cut(host, maxLineHeader))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil && c.Leaf.NotAfter.Sub(a.now()) > leafRenewal {
		return c, nil
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves) // a wildcard route has an unlimited number of hosts
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot create a certificate: %w", err)
	}
	t := a.template(host, leafLife)
	t.DNSNames, t.KeyUsage, t.ExtKeyUsage = []string{host}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("cannot create a certificate: %w", err)
	}
	c := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
	if c.Leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("cannot create a certificate: %w", err)
	}
	a.leaves[host] = c
	return c, nil
}

func (a *Authority) template(name string, life time.Duration) *x509.Certificate {
	now := a.now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(randomBytes(16)),
		Subject:      pkix.Name{CommonName: cut(name, 60)},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(life),
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	b[0] &= 0x7f        // a serial number is positive
	return b
}

// Named reports whether there is a route for a host, with any path.
func (r *Router) Named(host string) bool { return r.table.Load().named(host) }

func (t *table) named(host string) bool {
	host = hostKey(host)
	if t.hosts[host] != nil {
		return true
	}
	for rest := host; t.hasWildcard; {
		_, below, ok := strings.Cut(rest, ".")
		if !ok {
			return false
		}
		if t.hosts[anyPrefix+below] != nil {
			return true
		}
		rest = below
	}
	return false
}
