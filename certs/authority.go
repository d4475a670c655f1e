// Package certs has the certificates of dewd's TLS listeners. A local certificate
// authority (CA), created once, signs them: one for the domain and its wildcard, and one
// for each deeper name when a client first asks for it. Package certs/trust adds the CA
// to the certificate stores of the machine.
//
//	ROOT/keys/router-ca.pem, .key ──▶ Authority ──▶ certificate of DOMAIN and *.DOMAIN
//	                                            └─▶ certificate of a.b.DOMAIN, in a bounded cache
//
// Certificates are renewed during a handshake, so no restart is needed.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	authorityLife    = 10 * 365 * 24 * time.Hour
	authorityRenewal = 30 * 24 * time.Hour // before it expires, at a start of dewd
	leafLife         = 90 * 24 * time.Hour // short enough for all clients
	leafRenewal      = 30 * 24 * time.Hour // before it expires
	clockSkew        = time.Hour
	maxLeaves        = 1024
)

// The files of an authority. They are named after the router, which was the first to
// use it.
const (
	certFile = "router-ca.pem" // for clients
	keyFile  = "router-ca.key" // secret
	oldFile  = "router-ca.old.pem"
)

// Config configures an Authority.
type Config struct {
	// Dir is the folder with the files of the authority.
	Dir string
	// Domain is the domain whose names get certificates.
	Domain string
	// Names are further names of the listeners.
	Names []string
	// Named reports whether a host outside of Domain has a route and needs a
	// certificate. Nil means that none has.
	Named func(host string) bool
}

// Authority signs the certificates of the listeners. A client that trusts its
// certificate trusts them all.
type Authority struct {
	c        Config
	cert     *x509.Certificate
	key      *ecdsa.PrivateKey
	replaced string

	mu     sync.Mutex // guards the fields below
	main   *tls.Certificate
	leaves map[string]*tls.Certificate
}

// Open opens the authority in a folder, and creates it on the first start. It creates a
// new one if the stored one cannot sign for the domain, or expires soon.
func Open(c Config) (*Authority, error) {
	c.Domain = Host(c.Domain)
	a := &Authority{c: c, leaves: map[string]*tls.Certificate{}}
	err := a.load()
	if errors.Is(err, os.ErrNotExist) {
		return a, a.create()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot load the certificate authority in %s: %w (restore both files, or move both away: then dewd creates new ones)", c.Dir, err)
	}
	if a.replaced = a.unusable(); a.replaced == "" {
		return a, nil
	}
	// Without a certificate, the next start creates both files again.
	if err := os.Rename(filepath.Join(c.Dir, certFile), filepath.Join(c.Dir, oldFile)); err != nil {
		return nil, fmt.Errorf("cannot replace the certificate authority: %w", err)
	}
	return a, a.create()
}

// load reads the files of the authority.
func (a *Authority) load() error {
	key := filepath.Join(a.c.Dir, keyFile)
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.c.Dir, certFile), key)
	if err != nil {
		return err
	}
	secret, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New(keyFile + " is not an ECDSA key")
	}
	a.cert, a.key = pair.Leaf, secret
	return os.Chmod(key, 0o600)
}

// unusable returns why a loaded authority cannot be used any longer.
func (a *Authority) unusable() string {
	switch {
	case time.Until(a.cert.NotAfter) < authorityRenewal:
		return "it expires at " + a.cert.NotAfter.UTC().Format(time.RFC3339)
	case !a.permits(a.c.Domain):
		return "it can sign only for " + strings.Join(a.cert.PermittedDNSDomains, ", ") + " and not for " + a.c.Domain
	}
	return ""
}

// permits reports whether clients accept a certificate of the authority for a host.
func (a *Authority) permits(host string) bool {
	return len(a.cert.PermittedDNSDomains) == 0 || slices.ContainsFunc(a.cert.PermittedDNSDomains, func(domain string) bool { return host == domain || below(host, domain) })
}

// File returns the path of the certificate that clients must trust.
func (a *Authority) File() string { return filepath.Join(a.c.Dir, certFile) }

// PEM returns the certificate that clients must trust.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Expires returns when the authority expires.
func (a *Authority) Expires() time.Time { return a.cert.NotAfter }

// Replaced returns why Open created a new authority in place of a stored one, or
// nothing.
func (a *Authority) Replaced() string { return a.replaced }

// Fingerprint returns the SHA-256 hash of a certificate.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Fingerprint returns the SHA-256 hash of the authority's certificate.
func (a *Authority) Fingerprint() string { return Fingerprint(a.cert) }

// TLS returns the configuration of a listener with certificates of the authority.
func (a *Authority) TLS() *tls.Config {
	return server(func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate(hello.ServerName) })
}

func server(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: get}
}

// loopback are the addresses that certificates have besides names.
var loopback = []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}

// loopbackRanges are the addresses that an authority can sign for.
var loopbackRanges = []*net.IPNet{
	{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
	{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
}

func (a *Authority) create() error {
	failed := func(err error) error { return fmt.Errorf("cannot create the certificate authority: %w", err) }
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return failed(err)
	}
	serial := serialNumber()
	t := template(fmt.Sprintf("dew CA %x", serial.Bytes()[:4]), time.Now().Add(authorityLife))
	t.SerialNumber = serial
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	t.PermittedDNSDomainsCritical = true
	t.PermittedDNSDomains, t.PermittedIPRanges = slices.Concat([]string{a.c.Domain}, a.outside()), loopbackRanges
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return failed(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return failed(err)
	}
	a.key = key
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return failed(err)
	}
	// Write the key first: without a certificate, the next start creates both again.
	if err := writePEM(filepath.Join(a.c.Dir, keyFile), "PRIVATE KEY", secret, 0o600); err != nil {
		return failed(err)
	}
	if err := writePEM(a.File(), "CERTIFICATE", der, 0o644); err != nil {
		return failed(err)
	}
	return nil
}

// outside returns the further names that are not part of the domain.
func (a *Authority) outside() []string {
	return slices.DeleteFunc(slices.Clone(a.c.Names), func(name string) bool { return name == a.c.Domain || below(name, a.c.Domain) })
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(mode), pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// certificate returns the certificate for a name that a client asks for. Clients that
// connect to an address ask for no name.
func (a *Authority) certificate(name string) (*tls.Certificate, error) {
	name = Host(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.needsOwn(name) {
		return renew(&a.main, func() (*tls.Certificate, error) { return a.sign(a.mainNames(), loopback) })
	}
	leaf := a.leaves[name]
	if leaf == nil && len(a.leaves) >= maxLeaves {
		clear(a.leaves) // clients choose the names
	}
	leaf, err := renew(&leaf, func() (*tls.Certificate, error) { return a.sign([]string{name}, nil) })
	if err != nil {
		return nil, err
	}
	a.leaves[name] = leaf
	return leaf, nil
}

// renew returns a certificate, and replaces it first if it expires soon.
func renew(c **tls.Certificate, sign func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	if *c != nil && time.Until((*c).Leaf.NotAfter) > leafRenewal {
		return *c, nil
	}
	fresh, err := sign()
	if err != nil {
		return nil, fmt.Errorf("cannot create a certificate: %w", err)
	}
	*c = fresh
	return fresh, nil
}

// needsOwn reports whether a name gets a certificate of its own. A name outside of the
// domain without a route gets the certificate of the domain, so that the client can say
// what is wrong.
func (a *Authority) needsOwn(name string) bool {
	if !nameForm.MatchString(name) || len(name) > maxName || slices.Contains(a.mainNames(), name) || !a.permits(name) {
		return false
	}
	if below(name, a.c.Domain) {
		parent, ok := strings.CutSuffix(name, "."+a.c.Domain)
		return ok && (strings.Contains(parent, ".") || !a.hasWildcard())
	}
	return a.c.Named != nil && a.c.Named(name)
}

// mainNames returns the names of the certificate of the domain.
func (a *Authority) mainNames() []string {
	names := []string{a.c.Domain}
	if a.hasWildcard() {
		names = append(names, "*."+a.c.Domain)
	}
	return append(names, slices.DeleteFunc(a.outside(), func(name string) bool { return !a.permits(name) })...)
}

// hasWildcard reports whether clients accept a wildcard for the domain. They do not for
// a domain of one label.
func (a *Authority) hasWildcard() bool { return strings.Contains(a.c.Domain, ".") }

func (a *Authority) sign(names []string, addresses []net.IP) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(leafLife)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	t := template(names[0], end)
	t.DNSNames, t.IPAddresses = names, addresses
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func template(name string, end time.Time) *x509.Certificate {
	const longest = 60 // of a common name: 64 characters
	return &x509.Certificate{
		SerialNumber: serialNumber(),
		Subject:      pkix.Name{CommonName: name[:min(len(name), longest)]},
		NotBefore:    time.Now().Add(-clockSkew),
		NotAfter:     end,
	}
}

func serialNumber() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b)     // never fails
	b[0] = b[0]&0x7f | 1<<6 // positive, and always of the same length
	return new(big.Int).SetBytes(b)
}

// maxName is the maximum length of a DNS name.
const maxName = 253

// nameForm is the form of names that get certificates of their own.
var nameForm = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

// Host returns a name in the form in which names are compared.
func Host(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// below reports whether a name is part of a domain, and not the domain itself.
func below(name, domain string) bool { return strings.HasSuffix(name, "."+domain) }
