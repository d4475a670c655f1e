package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Given returns the configuration of a listener with the certificate in two files, which
// are read again after a change.
func Given(certFile, keyFile string) (*tls.Config, error) {
	g := &given{certFile: certFile, keyFile: keyFile}
	if _, err := g.certificate(nil); err != nil {
		return nil, err
	}
	return server(g.certificate), nil
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
