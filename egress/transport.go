package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Transport returns a RoundTripper that sends requests like base, but only to hosts
// that the rules allow and to routes that dew serves. A connection must be open within
// timeout; 0: the request has the only limit.
func (p *Policy) Transport(base *http.Transport, timeout time.Duration) http.RoundTripper {
	t := &transport{policy: p, proxy: base.Proxy, direct: base.Clone(), proxied: base.Clone(), routed: base.Clone()}
	t.direct.Proxy, t.routed.Proxy = nil, nil
	t.direct.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.dial(ctx, network, address, timeout)
	}
	t.routed.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("cannot connect: %w", err)
		}
		at, ok := p.web(host)
		if !ok {
			return nil, errors.New("cannot connect: the route was deleted")
		}
		return (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, at)
	}
	return t
}

// transport has a separate transport for each kind of host.
type transport struct {
	policy  *Policy
	proxy   func(*http.Request) (*url.URL, error) // nil: none
	direct  *http.Transport
	proxied *http.Transport // its connections go to proxies only
	routed  *http.Transport // its connections go to the router only
}

// RoundTrip sends a request. A request through a proxy is checked before, because the
// rules would otherwise see only the connection to the proxy.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, ok := t.policy.web(req.URL.Hostname()); ok {
		return t.routed.RoundTrip(toRouter(req))
	}
	if t.proxy == nil {
		return t.direct.RoundTrip(req)
	}
	proxy, err := t.proxy(req)
	if err == nil && proxy == nil {
		return t.direct.RoundTrip(req)
	}
	if err == nil {
		err = t.checkProxied(req)
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return t.proxied.RoundTrip(req)
}

// checkProxied checks the host of a request through a proxy. A host without an address
// here may have an unknown one at the proxy.
func (t *transport) checkProxied(req *http.Request) error {
	err := t.policy.Check(req.Context(), req.URL.Hostname())
	if err == nil || errors.As(err, new(*Refused)) {
		return err
	}
	return fmt.Errorf("%w; dew must resolve the host before it uses the HTTP proxy, unless an administrator allows the host with dewd --allow-broker-hosts", err)
}

// toRouter turns a request into one to the router. It does not leave the machine, so it
// never uses TLS, whatever its URL says.
func toRouter(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	if out.URL.Scheme == "https" {
		out.URL.Scheme = "http"
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	return out
}

// CloseIdleConnections closes the idle connections.
func (t *transport) CloseIdleConnections() {
	for _, way := range []*http.Transport{t.direct, t.proxied, t.routed} {
		way.CloseIdleConnections()
	}
}
