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

// A route that is bound to a route service gets its requests through it:
//
//	client ─▶ router ─(signed)─▶ service ─(the same signature)─▶ router ─▶ app
//
// The service answers by itself, or sends the request on to the URL that it was told,
// with the signature, which says that the router had sent it.
const (
	forwardedHeader = "X-Cf-Forwarded-Url"
	signatureHeader = "X-Cf-Proxy-Signature"
	metadataHeader  = "X-Cf-Proxy-Metadata"

	// signatureLife is how long a service may keep a request.
	signatureLife = time.Minute
	serviceDial   = 5 * time.Second
)

var (
	badSignature = failure{http.StatusBadRequest, "route_service_signature", "400 Bad Request: Failed to validate Route Service Signature.\n", "no-store"}
	noSwitch     = failure{http.StatusServiceUnavailable, "route_service_unsupported", "503 Service Unavailable: Upgrades are not supported for routes bound to Route Services.\n", "no-store"}
	notAllowed   = failure{http.StatusBadGateway, "route_service_unsupported", "502 Bad Gateway: The address of the Route Service is not allowed (see dewd --allow-broker-hosts).\n", "no-store"}
	badService   = failure{http.StatusBadGateway, "route_service_unsupported", "502 Bad Gateway: The URL of the Route Service cannot be used.\n", "no-store"}
)

// Service is what the requests of a route go through.
type Service struct {
	URL string
	// Restricted says that Config.Egress decides whether the service may be there.
	Restricted bool
}

// boundService is a Service whose URL was read. A URL that cannot be used is nil:
// such a route must not be open.
type boundService struct {
	url        *url.URL
	restricted bool
}

// services says which service the requests of a route go through, by its guid.
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
			r.log.Error("the URL of a route service cannot be used: its route answers nobody", "route", guid)
			u = nil
		}
		out[guid] = boundService{u, service.Restricted}
	}
	return out, nil
}

// bind notes the services of routes.
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

// viaRouteService decides whether a request goes to the route's service first. It returns
// false when it goes nowhere.
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
	// A service that is an app here is asked without leaving.
	x.serviceEntry = t.match(x.via.Host, x.via.Path)
	return failure{}, true
}

// dropServiceHeaders removes what only the router and route services tell each
// other. It has been read by then, and an app must not take a client's word for it.
func dropServiceHeaders(req *http.Request) {
	for _, name := range []string{forwardedHeader, signatureHeader, metadataHeader} {
		req.Header.Del(name)
	}
}

// calledFor is what a signature is for.
func calledFor(req *http.Request) string { return req.Host + "\x00" + req.RequestURI }

// toService makes the request one to the route's service.
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

// askService sends the request to a service that is elsewhere.
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

// newServiceTransport makes the way to services elsewhere. Roots are the authorities that
// their certificates may have; nil: the machine's.
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

// signer signs what is sent to services. Its key lives as long as the router.
type signer struct{ key []byte }

func newSigner() signer {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return signer{key}
}

// sign returns the signature of what a request is for, and when that was.
func (s signer) sign(what string) (signature, metadata string) {
	m := make([]byte, 8, 24)
	binary.BigEndian.PutUint64(m, uint64(time.Now().UnixNano()))
	m = m[:cap(m)]
	_, _ = rand.Read(m[8:]) // no two are the same
	return base64.RawURLEncoding.EncodeToString(s.mac(m, what)), base64.RawURLEncoding.EncodeToString(m)
}

// verifies tells whether a signature is ours, for that, and not too old.
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
