package route

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// The requests of a route that is bound to a route service go through the service:
//
//	client ─▶ router ─(signed)─▶ service ─(the same signature)─▶ router ─▶ app
//
// The service responds itself, or forwards the request to the URL in its header. The
// signature proves that the router had sent it.
const (
	forwardedHeader = "X-Cf-Forwarded-Url"
	signatureHeader = "X-Cf-Proxy-Signature"
	metadataHeader  = "X-Cf-Proxy-Metadata"

	// signatureLife is how long a service can hold a request.
	signatureLife = time.Minute
	serviceDial   = 5 * time.Second
)

var (
	badSignature = failure{http.StatusBadRequest, "route_service_signature", "400 Bad Request: Failed to validate Route Service Signature.\n", "no-store"}
	noSwitch     = failure{http.StatusServiceUnavailable, "route_service_unsupported", "503 Service Unavailable: Upgrades are not supported for routes bound to Route Services.\n", "no-store"}
	notAllowed   = failure{http.StatusBadGateway, "route_service_unsupported", "502 Bad Gateway: The address of the Route Service is not allowed (see dewd --allow-broker-hosts).\n", "no-store"}
	badService   = failure{http.StatusBadGateway, "route_service_unsupported", "502 Bad Gateway: The URL of the Route Service is not valid.\n", "no-store"}
)

// Service is a route service.
type Service struct {
	URL string
	// Restricted says that Config.Egress decides whether the URL is allowed.
	Restricted bool
}

// boundService is a Service with a parsed URL. An unusable URL is nil: requests of such
// a route must not bypass the service.
type boundService struct {
	url        *url.URL
	restricted bool
}

// services returns the route services by route guid.
func (r *Router) services() (map[string]boundService, error) {
	if r.c.Services == nil {
		return nil, nil
	}
	all, err := r.c.Services()
	if err != nil {
		return nil, fmt.Errorf("cannot read the route services: %w", err)
	}
	out := make(map[string]boundService, len(all))
	for guid, service := range all {
		u, err := url.Parse(service.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			r.log.Error("the URL of a route service is not valid; requests for its route fail", "route", guid)
			u = nil
		}
		out[guid] = boundService{u, service.Restricted}
	}
	return out, nil
}

// bind sets the services of routes.
func (t *table) bind(services map[string]boundService) {
	if len(services) == 0 {
		return
	}
	for _, ps := range t.hosts {
		if ps.all != nil {
			ps.all.bind(services)
		}
		for _, e := range ps.entries {
			e.bind(services)
		}
	}
}

func (e *entry) bind(services map[string]boundService) {
	var bound boundService
	bound, e.serviced = services[e.route]
	e.service, e.restricted = bound.url, bound.restricted
}

// viaRouteService decides whether a request goes to the route's service first. It
// returns false if the request cannot be sent at all.
func (x *exchange) viaRouteService(t *table, req *http.Request) (failure, bool) {
	if !x.entry.serviced {
		return failure{}, true
	}
	if signature := req.Header.Get(signatureHeader); signature != "" {
		if !x.router.signer.verifies(signature, req.Header.Get(metadataHeader), calledFor(req)) {
			return badSignature, false
		}
		return failure{}, true
	}
	switch {
	case x.entry.service == nil:
		return badService, false
	case len(req.Header["Upgrade"]) > 0:
		return noSwitch, false
	}
	x.via = x.entry.service
	// A service that is an app on this machine is reached without leaving the router.
	x.serviceEntry = t.match(x.via.Host, x.via.Path)
	return failure{}, true
}

// dropServiceHeaders removes the headers between the router and route services. They
// are already evaluated, and an app must not trust such headers from a client.
func dropServiceHeaders(req *http.Request) {
	for _, name := range []string{forwardedHeader, signatureHeader, metadataHeader} {
		req.Header.Del(name)
	}
}

// calledFor returns the request data that is signed.
func calledFor(req *http.Request) string { return req.Host + "\x00" + req.RequestURI }

// toService turns the request into one to the route's service.
func (x *exchange) toService(in, out *http.Request) {
	signature, metadata := x.router.signer.sign(calledFor(in))
	out.Header.Set(forwardedHeader, x.forward.proto+"://"+in.Host+in.RequestURI)
	out.Header.Set(signatureHeader, signature)
	out.Header.Set(metadataHeader, metadata)
	out.Host = x.via.Host
	out.URL.Path, out.URL.RawPath, out.URL.RawQuery = x.via.Path, x.via.RawPath, x.via.RawQuery
	if out.URL.Path == "" {
		out.URL.Path = "/"
	}
}

// askService sends the request to an external service.
func (x *exchange) askService(out *http.Request) (*http.Response, error) {
	req := new(http.Request)
	*req = *out
	to := *out.URL
	to.Scheme, to.Host, to.User = x.via.Scheme, x.via.Host, nil
	req.URL = &to
	if x.body != nil {
		lent, err := x.body.lend()
		if err != nil {
			return nil, err
		}
		req.Body = lent
	}
	var way http.RoundTripper = x.router.serviceTransport
	if x.entry.restricted {
		way = x.router.restricted
	}
	res, err := way.RoundTrip(req)
	if err != nil {
		x.router.log.Warn("route service did not answer", "route", x.entry.route, "service", x.via.Host, "err", err)
		return nil, fmt.Errorf("route service: %w", err)
	}
	return res, nil
}

// newServiceTransport returns the transport to external services. Roots verify their
// certificates; nil: the machine's.
func newServiceTransport(roots *x509.CertPool) *http.Transport {
	dialer := net.Dialer{Timeout: serviceDial}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   serviceDial,
		ResponseHeaderTimeout: signatureLife,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true,
	}
}

// signer signs requests to services. Its key lasts as long as the router.
type signer struct{ key []byte }

func newSigner() signer {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return signer{key}
}

// sign returns the signature of a request, and metadata with its time.
func (s signer) sign(what string) (signature, metadata string) {
	m := make([]byte, 8, 24)
	binary.BigEndian.PutUint64(m, uint64(time.Now().UnixNano()))
	m = m[:cap(m)]
	_, _ = rand.Read(m[8:]) // makes each one unique
	return base64.RawURLEncoding.EncodeToString(s.mac(m, what)), base64.RawURLEncoding.EncodeToString(m)
}

// verifies reports whether a signature is the router's own, for that request, and not
// too old.
func (s signer) verifies(signature, metadata, what string) bool {
	got, err := base64.RawURLEncoding.DecodeString(signature)
	m, merr := base64.RawURLEncoding.DecodeString(metadata)
	if err != nil || merr != nil || len(m) < 8 || !hmac.Equal(got, s.mac(m, what)) {
		return false
	}
	age := time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(m))))
	return age >= -signatureLife && age <= signatureLife
}

func (s signer) mac(metadata []byte, what string) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write(metadata)
	h.Write([]byte(what))
	return h.Sum(nil)
}
