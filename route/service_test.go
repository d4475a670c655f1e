package route

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
)

// guard is a route service. It forwards requests with the right password to the given
// URL, after change has modified them.
func (w *world) guard(change func(req *http.Request)) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "word" {
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		to, err := url.Parse(r.Header.Get("X-CF-Forwarded-Url"))
		if err != nil || r.Header.Get("X-CF-Proxy-Metadata") == "" {
			w.t.Errorf("the service was sent %v, %v", r.Header, err)
			return
		}
		req, err := http.NewRequest(r.Method, w.front.URL+to.RequestURI(), r.Body)
		if err != nil {
			w.t.Error(err)
			return
		}
		req.Host, req.Header, req.ContentLength = to.Host, r.Header.Clone(), r.ContentLength
		req.Header.Set("X-User", "ada")
		if change != nil {
			change(req)
		}
		res, err := w.front.Client().Do(req)
		if err != nil {
			w.t.Error(err)
			return
		}
		defer res.Body.Close()
		rw.Header().Set("X-Through", "the guard")
		rw.WriteHeader(res.StatusCode)
		_, _ = io.Copy(rw, res.Body)
	})
}

// bindTo binds all routes except that of "guard" to a service.
func (w *world) bindTo(service string, roots *x509.CertPool) {
	w.t.Helper()
	w.router.c.Services = func() (map[string]Service, error) {
		out := map[string]Service{}
		for _, rt := range w.registry.routes {
			if rt.Host != "guard" {
				out[rt.GUID] = Service{URL: service}
			}
		}
		return out, nil
	}
	w.router.serviceTransport = newServiceTransport(roots)
	if err := w.router.readRoutes(); err != nil {
		w.t.Fatal(err)
	}
}

// guarded is an app that checks and reports the headers it got.
func guarded(t *testing.T) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for _, name := range []string{forwardedHeader, signatureHeader, metadataHeader} {
			if r.Header.Get(name) != "" {
				t.Errorf("the app got %s", name)
			}
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(rw, r.Method+" "+r.Host+r.RequestURI+" "+r.Header.Get("X-User")+" "+string(b))
	})
}

func TestRouteService(t *testing.T) {
	for _, place := range []string{"elsewhere", "an app"} {
		t.Run(place, func(t *testing.T) {
			guard := routeTo("guard", "", "guard-app")
			guard.GUID = "guard-route"
			w := newWorld(t, routeTo("shop", "", "shop-app"), guard)
			w.instance("shop-app", 0, guarded(t))
			service := "https://guard.dew.localhost/check?strict=1"
			if place == "an app" {
				w.instance("guard-app", 0, w.guard(nil))
				w.bindTo(service, nil)
			} else {
				s := httptest.NewTLSServer(w.guard(nil))
				t.Cleanup(s.Close)
				roots := x509.NewCertPool()
				roots.AddCert(s.Certificate())
				w.bindTo(s.URL+"/check?strict=1", roots)
			}
			res, body := w.get("shop", "/a%2Fb?x=1&y")
			if res.StatusCode != http.StatusUnauthorized || body != "who are you?\n" {
				t.Errorf("without the word: %d %q", res.StatusCode, body)
			}
			req := w.request(http.MethodPost, "shop", "/a%2Fb?x=1&y", strings.NewReader("order"))
			req.Header.Set("Authorization", "word")
			res, body = w.do(req)
			if want := "POST shop.dew.localhost:8080/a%2Fb?x=1&y ada order"; res.StatusCode != http.StatusOK || body != want || res.Header.Get("X-Through") == "" {
				t.Errorf("with the word: %d %q, want %q", res.StatusCode, body, want)
			}
		})
	}
}

// Requests that did not come through the service are refused.
func TestRouteServiceForged(t *testing.T) {
	for name, change := range map[string]func(req *http.Request){
		"another path":     func(req *http.Request) { req.URL.Path = "/admin" },
		"another query":    func(req *http.Request) { req.URL.RawQuery = "x=2" },
		"another host":     func(req *http.Request) { req.Host = "other.dew.localhost:8080" },
		"another metadata": func(req *http.Request) { req.Header.Set(metadataHeader, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA") },
		"no metadata":      func(req *http.Request) { req.Header.Del(metadataHeader) },
		"another key": func(req *http.Request) {
			s, m := newSigner().sign(req.Host + "\x00" + req.URL.RequestURI())
			req.Header.Set(signatureHeader, s)
			req.Header.Set(metadataHeader, m)
		},
		"rubbish": func(req *http.Request) { req.Header.Set(signatureHeader, "!!") },
	} {
		t.Run(name, func(t *testing.T) {
			other := routeTo("other", "", "shop-app")
			other.GUID = "other-route"
			w := newWorld(t, routeTo("shop", "", "shop-app"), other)
			var met atomic.Bool
			w.instance("shop-app", 0, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met.Store(true) }))
			s := httptest.NewServer(w.guard(change))
			t.Cleanup(s.Close)
			w.bindTo(s.URL, nil)
			req := w.request(http.MethodGet, "shop", "/?x=1", nil)
			req.Header.Set("Authorization", "word")
			res, body := w.do(req)
			if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "Route Service Signature") || met.Load() {
				t.Errorf("%d %q, the app was met: %v", res.StatusCode, body, met.Load())
			}
		})
	}
}

func TestRouteServiceFails(t *testing.T) {
	t.Parallel()
	const gone = "http://127.0.0.1:1" // no test ever listens on that port
	strange := httptest.NewTLSServer(says("come in"))
	t.Cleanup(strange.Close)
	for _, tt := range []struct {
		name, service, upgrade string
		status                 int
		cause                  string
	}{
		{"nobody is there", gone, "", 502, "endpoint_failure"},
		{"a certificate that nobody knows", strange.URL, "", 502, "endpoint_failure"},
		{"not a URL", "https://%", "", 502, "route_service_unsupported"},
		{"an upgrade", strange.URL, "websocket", 503, "route_service_unsupported"},
		{"an app without an instance", "https://guard.dew.localhost", "", 503, "no_endpoints"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			guard := routeTo("guard", "", "guard-app")
			guard.GUID = "guard-route"
			w := newWorld(t, routeTo("shop", "", "shop-app"), guard)
			w.instance("shop-app", 0, says("open to all"))
			w.bindTo(tt.service, nil)
			req := w.request(http.MethodGet, "shop", "/", nil)
			if tt.upgrade != "" {
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", tt.upgrade)
			}
			res, body := w.do(req)
			if res.StatusCode != tt.status || res.Header.Get("X-Cf-RouterError") != tt.cause {
				t.Errorf("%d %q %q", res.StatusCode, res.Header.Get("X-Cf-RouterError"), body)
			}
		})
	}
}

// If the services cannot be read, the old table stays, so that no route bypasses its
// service.
func TestRouteServicesUnread(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "shop-app"))
	w.instance("shop-app", 0, says("open to all"))
	s := httptest.NewServer(w.guard(nil))
	t.Cleanup(s.Close)
	w.bindTo(s.URL, nil)
	w.router.c.Services = func() (map[string]Service, error) { return nil, errRefused }
	w.registry.set(func() { w.registry.routes = append(w.registry.routes, app.Route{}) })
	if err := w.router.readRoutes(); err == nil {
		t.Error("it was read")
	}
	if res, body := w.get("shop", "/"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestSignatureExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner()
		signature, metadata := s.sign("a")
		time.Sleep(signatureLife)
		if !s.verifies(signature, metadata, "a") {
			t.Error("it is too old after its life")
		}
		time.Sleep(time.Nanosecond)
		if s.verifies(signature, metadata, "a") {
			t.Error("it is never too old")
		}
	})
}

// Headers between routers and route services do not reach an app from a client, whether
// or not the route is bound to a service.
func TestClientHeadersDropped(t *testing.T) {
	t.Parallel()
	dropped := []string{"X-Forwarded-Client-Cert", "X-CF-Proxy-Signature", "X-CF-Proxy-Metadata", "X-CF-Forwarded-Url"}
	for _, bound := range []bool{false, true} {
		guard := routeTo("guard", "", "guard-app")
		guard.GUID = "guard-route"
		w := newWorld(t, routeTo("shop", "", "shop-app"), guard)
		got := make(chan http.Header, 1)
		w.instance("shop-app", 0, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
		w.instance("guard-app", 0, w.guard(func(req *http.Request) { req.Header.Set("X-Forwarded-Client-Cert", "forged") }))
		names := dropped
		if bound {
			w.bindTo("https://guard.dew.localhost/check", nil)
			names = dropped[:1] // a service needs the others
		}
		req := w.request(http.MethodGet, "shop", "/", nil)
		req.Header.Set("Authorization", "word")
		for _, name := range names {
			req.Header.Add(name, "forged")
			req.Header.Add(name, "twice")
		}
		if res, body := w.do(req); res.StatusCode != http.StatusOK {
			t.Fatalf("bound %v: %d %q", bound, res.StatusCode, body)
		}
		h := <-got
		for _, name := range dropped {
			if v := h.Values(name); len(v) > 0 {
				t.Errorf("bound %v: the app got %s: %q", bound, name, v)
			}
		}
		if through := h.Get("X-User") == "ada"; through != bound {
			t.Errorf("bound %v: it came through the service: %v", bound, through)
		}
	}
}

// dewd contacts a service whose URL a user set only where the policy allows it. Clients
// do not see what is at the address.
func TestRouteServicesOfUsersAreRestricted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, routeTo("shop", "", "shop-app"))
	w.instance("shop-app", 0, says("open to all"))
	var met atomic.Bool
	there := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { met.Store(true) }))
	t.Cleanup(there.Close)
	const gone = "http://127.0.0.1:1" // no test ever listens on that port
	var answers []string
	for _, service := range []string{there.URL, gone, "https://localhost:1", "http://169.254.169.254/latest"} {
		w.bindTo(service, nil)
		bound, err := w.router.c.Services()
		if err != nil {
			t.Fatal(err)
		}
		w.router.c.Services = func() (map[string]Service, error) {
			for guid, s := range bound {
				s.Restricted = true
				bound[guid] = s
			}
			return bound, nil
		}
		if err := w.router.readRoutes(); err != nil {
			t.Fatal(err)
		}
		res, body := w.get("shop", "/")
		answers = append(answers, res.Status+" "+res.Header.Get("X-Cf-RouterError")+" "+body)
	}
	for _, got := range answers {
		if want := "502 Bad Gateway route_service_unsupported 502 Bad Gateway: The address of the Route Service is not allowed (see dewd --allow-broker-hosts).\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if met.Load() {
		t.Error("the service was asked")
	}
}
