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
	URL  string // can contain a password
	Name string // of the service instance, for messages
	// Restricted says that Config.Egress decides whether dewd connects to the URL.
	Restricted bool
	TLS        TLS
}

// key identifies the drain in the store. It does not contain the URL.
func (t Target) key() string {
	sum := sha256.Sum256([]byte(t.URL))
	return t.App + "/" + hex.EncodeToString(sum[:])
}

// The schemes of drain URLs.
const (
	schemeTCP   = "syslog"
	schemeTLS   = "syslog-tls"
	schemeHTTP  = "https"
	schemeBatch = "https-batch"
)

// Schemes lists the schemes of drain URLs, for messages.
const Schemes = schemeTCP + ", " + schemeTLS + ", " + schemeHTTP + " or " + schemeBatch

// defaultPorts are the ports of RFC 6587 and RFC 5425, and of HTTPS.
var defaultPorts = map[string]string{schemeTCP: "514", schemeTLS: "6514", schemeHTTP: "443", schemeBatch: "443"}

// maxURL is the maximum length of a drain's URL.
const maxURL = 2048

// CheckURL checks whether raw is a valid drain URL. The error says what to write
// instead, and does not repeat the URL.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("the URL of the log drain is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parse error repeats the URL with its secrets.
		return nil, errors.New("the URL of the log drain is not valid; use syslog://HOST:PORT, syslog-tls://HOST:PORT or https://HOST/PATH")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if defaultPorts[u.Scheme] == "" {
		return nil, errors.New("the URL of the log drain must start with syslog://, syslog-tls://, https:// or https-batch://")
	}
	if u.Hostname() == "" {
		return nil, errors.New("the URL of the log drain has no host; use syslog://HOST:PORT, syslog-tls://HOST:PORT or https://HOST/PATH")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPorts[u.Scheme])
	}
	return u, nil
}

// displayURL returns the part of a drain's URL that can be shown to users: scheme and host.
func displayURL(u *url.URL) string { return u.Scheme + "://" + u.Host }
