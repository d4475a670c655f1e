package drain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Target is one drain of one app.
type Target struct {
	App  string // guid
	URL  string // may hold a password
	Name string // of the service instance, for sentences
	// Restricted says that Config.Egress decides whether dewd connects to the URL.
	Restricted bool
}

// key names the drain in the store. The URL itself stays out of it.
func (t Target) key() string {
	sum := sha256.Sum256([]byte(t.URL))
	return t.App + "/" + hex.EncodeToString(sum[:])
}

// The ways to send.
const (
	schemeTCP   = "syslog"
	schemeTLS   = "syslog-tls"
	schemeHTTP  = "https"
	schemeBatch = "https-batch"
)

// Schemes lists the schemes of drain URLs, for messages.
const Schemes = schemeTCP + ", " + schemeTLS + ", " + schemeHTTP + " or " + schemeBatch

// defaultPorts are those of RFC 6587 and RFC 5425.
var defaultPorts = map[string]string{schemeTCP: "514", schemeTLS: "6514", schemeHTTP: "443", schemeBatch: "443"}

// maxURL bounds a drain's address.
const maxURL = 2048

// CheckURL tells whether lines can be sent to raw, and if not what to write
// instead. The error tells nothing of what stands in it.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("the drain's URL is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The error repeats the URL, and with it what is secret in it.
		return nil, errors.New("the drain's URL cannot be read: write syslog://HOST:PORT, syslog-tls://HOST:PORT or https://HOST/PATH")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if defaultPorts[u.Scheme] == "" {
		return nil, errors.New("the drain's URL must begin with syslog://, syslog-tls://, https:// or https-batch://")
	}
	if u.Hostname() == "" {
		return nil, errors.New("the drain's URL names no host: write syslog://HOST:PORT, syslog-tls://HOST:PORT or https://HOST/PATH")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPorts[u.Scheme])
	}
	return u, nil
}

// place is what may be said of a drain's address: where it is, and no more.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host }
