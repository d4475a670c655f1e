package drain

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
)

// TLS has the certificates of a drain in PEM. Empty values stand for none.
type TLS struct {
	Cert, Key string // of dewd as the client, used if both are there
	CA        string // trusted for the receiver, in addition to Config.Roots
}

// ReadTLS reads the certificates from the credentials of a service binding, where they
// have the names that Cloud Foundry uses: cert, key and ca. Values that are not strings
// are ignored, because other services use the same names.
func ReadTLS(credentials json.RawMessage) TLS {
	var all map[string]json.RawMessage
	if json.Unmarshal(credentials, &all) != nil {
		return TLS{}
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(all[name], &s) // another type: empty
		return s
	}
	return TLS{Cert: text("cert"), Key: text("key"), CA: text("ca")}
}

// config returns the configuration of connections to the receiver.
func (t TLS) config(roots *x509.CertPool) (*tls.Config, error) {
	c := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if t.Cert != "" && t.Key != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, fmt.Errorf("cannot use cert and key of the service's credentials as the client certificate: %w. Update the credentials", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.CA == "" {
		return c, nil
	}
	pool, err := poolOf(roots)
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM([]byte(t.CA)) {
		return nil, errors.New("ca of the service's credentials has no certificate in PEM. Update the credentials")
	}
	c.RootCAs = pool
	return c, nil
}

// poolOf returns a copy of roots, or of the system's.
func poolOf(roots *x509.CertPool) (*x509.CertPool, error) {
	if roots != nil {
		return roots.Clone(), nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificates of the machine: %w", err)
	}
	return pool, nil
}
