package api

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
)

// askAt sends a request to a listener, at a host and over TLS if secure is set.
func askAt(h http.Handler, host string, secure bool, path, origin string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host, r.TLS = host, nil
	if secure {
		r.TLS = &tls.ConnectionState{}
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	got := httptest.NewRecorder()
	h.ServeHTTP(got, r)
	return got
}

// The links of responses start with the address at which the client reached the API,
// unless a proxy can be in front of the listener.
func TestLinksFollowTheClient(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for _, tt := range []struct {
		host   string
		secure bool
		fixed  bool
		want   string
	}{
		{"127.0.0.1:8484", false, false, publicURL},
		{"localhost:8484", false, false, "http://localhost:8484"},
		{"[::1]:8484", false, false, "http://[::1]:8484"},
		{"localhost", false, false, "http://localhost"},
		{"[::1]", false, false, "http://[::1]"},
		{"127.0.0.1:8485", true, false, "https://127.0.0.1:8485"},
		{"API.dew.localhost.:8443", true, false, "https://api.dew.localhost:8443"},
		{"api.dew.localhost:8080", false, false, "http://api.dew.localhost:8080"},
		{"api.dew.localhost", true, false, "https://api.dew.localhost"},
		{"localhost:8484", false, true, publicURL},
		{"localhost:8485", true, true, "https://localhost:8485"},
		{"api.dew.localhost:8080", false, true, "http://api.dew.localhost:8080"},
		{"localhost:99999", false, false, publicURL},
		{"localhost:1@x", false, false, publicURL},
	} {
		c := w.c
		c.FixedURL, c.APINames, c.AuthNames, c.Metrics = tt.fixed, []string{"api.dew.localhost", "uaa.dew.localhost"}, []string{"uaa.dew.localhost"}, nil
		h := must(New(c))(t).Handler()
		var root v3.Root
		if got := askAt(h, tt.host, tt.secure, "/", ""); got.Code != 200 || json.Unmarshal(got.Body.Bytes(), &root) != nil {
			t.Errorf("%+v: %d %s", tt, got.Code, got.Body)
			continue
		}
		l := root.Links
		for have, want := range map[string]string{
			l.Self.Href: "", l.CloudControllerV3.Href: "/v3", l.UAA.Href: "/uaa", l.Login.Href: "/uaa", l.LogCache.Href: "", l.LogStream.Href: "",
		} {
			if have != tt.want+want {
				t.Errorf("%+v: link %s, want %s", tt, have, tt.want+want)
			}
		}
		var info struct{ Links map[string]string }
		if got := askAt(h, tt.host, tt.secure, "/uaa/info", ""); json.Unmarshal(got.Body.Bytes(), &info) != nil || info.Links["uaa"] != tt.want+"/uaa" {
			t.Errorf("%+v: %s", tt, got.Body)
		}
		if got := askAt(h, tt.host, tt.secure, "/healthz", tt.want); !strings.Contains(tt.host, "@") && tt.want != publicURL && got.Code != 200 && !strings.HasSuffix(tt.host, ".:8443") {
			t.Errorf("%+v: own origin: %d %s", tt, got.Code, got.Body)
		}
	}
}

// A proxy can also stand in front of the router: its public URL is used for its name.
func TestLinksBehindProxy(t *testing.T) {
	t.Parallel()
	c := newTestServer(t).c
	c.FixedURL, c.PublicURL, c.APINames, c.Metrics = true, "https://api.dew.localhost", []string{"api.dew.localhost", "log-cache.dew.localhost"}, nil
	h := must(New(c))(t).Handler()
	for host, want := range map[string]string{"api.dew.localhost": "https://api.dew.localhost", "api.dew.localhost:8080": "https://api.dew.localhost", "log-cache.dew.localhost:8080": "http://log-cache.dew.localhost:8080"} {
		var root v3.Root
		if got := askAt(h, host, false, "/", ""); json.Unmarshal(got.Body.Bytes(), &root) != nil || root.Links.Self.Href != want {
			t.Errorf("%s: %d %s, want %s", host, got.Code, got.Body, want)
		}
	}
}

// The links of lists and jobs follow the client, and not only those of the root.
func TestListLinksFollowTheClient(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.createApp("one")
	w.createApp("two")
	w.user("ada", auth.ScopeAdmin)
	s := must(New(func() Config { c := w.c; c.Metrics = nil; return c }()))(t)
	r := httptest.NewRequest(http.MethodGet, "/v3/apps?per_page=1", nil)
	r.Host, r.TLS = "localhost:8485", &tls.ConnectionState{}
	r.Header.Set("Authorization", "bearer "+w.login("ada"))
	got := httptest.NewRecorder()
	s.Handler().ServeHTTP(got, r)
	var list v3.List[v3.App]
	if err := json.Unmarshal(got.Body.Bytes(), &list); err != nil || got.Code != 200 || list.Pagination.Next == nil {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	for _, href := range []string{list.Pagination.Next.Href, list.Resources[0].Links["self"].Href} {
		if !strings.HasPrefix(href, "https://localhost:8485/v3/apps") {
			t.Errorf("link %s", href)
		}
	}
	if strings.Contains(got.Body.String(), publicURL) {
		t.Errorf("a link to another address: %s", got.Body)
	}
}

// The names of the authorization server serve its paths without a prefix.
func TestAuthNames(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	c := w.c
	c.APINames, c.AuthNames, c.Metrics = []string{"api.dew.localhost", "uaa.dew.localhost"}, []string{"uaa.dew.localhost"}, nil
	h := must(New(c))(t).Handler()
	for _, tt := range []struct {
		host, path string
		want       int
	}{
		{"uaa.dew.localhost:8443", "/info", 200},
		{"uaa.dew.localhost:8443", "/uaa/info", 200},
		{"uaa.dew.localhost:8443", "/token_keys", 200},
		{"uaa.dew.localhost:8443", "/v3/info", 404},
		{"api.dew.localhost:8443", "/uaa/info", 200},
		{"api.dew.localhost:8443", "/token_keys", 401},
		{"x.dew.localhost:8443", "/", 421},
	} {
		if got := askAt(h, tt.host, true, tt.path, ""); got.Code != tt.want {
			t.Errorf("%s%s: %d %s, want %d", tt.host, tt.path, got.Code, got.Body, tt.want)
		}
	}
}

// A page of another scheme or port is another origin, even on a name of the API.
func TestOriginsOverTLS(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for origin, want := range map[string]int{
		"https://localhost:8485": 200, publicURL: 200, "http://localhost:8485": 403, "https://localhost:8443": 403, "https://shop.dew.localhost": 403,
	} {
		if got := askAt(w.listener, "localhost:8485", true, "/healthz", origin); got.Code != want {
			t.Errorf("%s: %d, want %d", origin, got.Code, want)
		}
	}
}

// The number of stored addresses is limited.
func TestViewsAreBounded(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	s := must(New(func() Config { c := w.c; c.Metrics = nil; return c }()))(t)
	h := s.Handler()
	for i := range maxViews + 3 {
		askAt(h, fmt.Sprintf("localhost:%d", 1000+i), false, "/", "")
	}
	askAt(h, "localhost:1010", false, "/", "")
	if n, first := len(s.views.order), s.views.order[0].base; n != maxViews || first != "http://localhost:1010" {
		t.Errorf("%d views, the first %s", n, first)
	}
	for _, v := range s.views.order {
		if v.base == "http://localhost:1000" {
			t.Error("the oldest view is still stored")
		}
	}
}
