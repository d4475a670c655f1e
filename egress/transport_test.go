package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// web starts a server that responds with text and counts the requests.
func web(t *testing.T, text string) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	met := new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		met.Add(1)
		_, _ = io.WriteString(w, text+" "+r.Host+r.URL.Path+" "+r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(s.Close)
	return s, met
}

// get requests a URL with a transport.
func get(t *testing.T, way http.RoundTripper, where string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, where, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: way}
	defer c.CloseIdleConnections()
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func portOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

// The rules check a redirect like any other request.
func TestRedirect(t *testing.T) {
	t.Parallel()
	secret, met := web(t, "secret")
	door := httptest.NewServer(http.RedirectHandler(secret.URL, http.StatusFound))
	t.Cleanup(door.Close)
	p := Policy{Resolver: names(t, map[string][]string{"door.example": {"127.0.0.1"}})}
	if err := p.Allow.UnmarshalText([]byte("door.example")); err != nil {
		t.Fatal(err)
	}
	body, err := get(t, p.Transport(&http.Transport{}, 0), "http://door.example:"+portOf(t, door))
	if refused(err) != "a loopback address" || met.Load() != 0 {
		t.Errorf("%q, %v, requests: %d", body, err, met.Load())
	}
}

// Requests through a proxy are checked before. The proxy itself can be anywhere,
// because an administrator chose it.
func TestProxy(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	asked.Store("")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.String())
		_, _ = io.WriteString(w, "through the proxy")
	}))
	t.Cleanup(proxy.Close)
	secret, met := web(t, "secret")
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Resolver: names(t, map[string][]string{"near.example": {"127.0.0.1"}, "far.example": {"192.0.2.1"}})}
	if err := p.Allow.UnmarshalText([]byte("inside.example")); err != nil {
		t.Fatal(err)
	}
	way := p.Transport(&http.Transport{Proxy: http.ProxyURL(at)}, 0)
	for where, rule := range map[string]string{
		secret.URL: "a loopback address",
		"http://near.example:" + portOf(t, secret): "a loopback address",
		"http://169.254.169.254/latest/meta-data":  "a link-local address",
		proxy.URL: "a loopback address",
	} {
		if body, err := get(t, way, where); refused(err) != rule {
			t.Errorf("%s: %q, %v; want %s", where, body, err, rule)
		}
	}
	if _, err := get(t, way, "http://nowhere.example"); err == nil || !strings.Contains(err.Error(), "before it uses the HTTP proxy") {
		t.Errorf("a name that nobody knows: %v", err)
	}
	if asked.Load() != "" || met.Load() != 0 {
		t.Errorf("the proxy was asked for %v, requests: %d", asked.Load(), met.Load())
	}
	for _, where := range []string{"http://far.example/a", "http://192.0.2.7/a", "http://inside.example/a"} {
		body, err := get(t, way, where)
		if err != nil || body != "through the proxy" || asked.Load() != where {
			t.Errorf("%s: %q, %v, the proxy was asked for %v", where, body, err, asked.Load())
		}
	}
}

// A proxy from the environment is not used for all hosts: the rules check requests that
// bypass it.
func TestPastProxy(t *testing.T) {
	t.Parallel()
	secret, met := web(t, "secret")
	none := func(*http.Request) (*url.URL, error) { return nil, nil }
	_, err := get(t, (&Policy{}).Transport(&http.Transport{Proxy: none}, 0), secret.URL)
	if refused(err) != "a loopback address" || met.Load() != 0 {
		t.Errorf("%v, requests: %d", err, met.Load())
	}
}

// Requests for the host of a route go to the router, whatever port and scheme the URL
// has.
func TestRouted(t *testing.T) {
	t.Parallel()
	router, met := web(t, "router")
	other, spared := web(t, "other")
	p := Policy{Web: func(host string) (string, bool) {
		return strings.TrimPrefix(router.URL, "http://"), host == "app.example"
	}}
	proxy := func(*http.Request) (*url.URL, error) { return url.Parse(other.URL) }
	for name, base := range map[string]*http.Transport{"": {}, "with a proxy": {Proxy: proxy}} {
		way := p.Transport(base, 0)
		port := portOf(t, other)
		for where, want := range map[string]string{
			"http://app.example/a":          "router app.example/a ",
			"http://app.example:" + port:    "router app.example:" + port + "/ ",
			"https://app.example:8443/v2/x": "router app.example:8443/v2/x https",
		} {
			if body, err := get(t, way, where); err != nil || body != want {
				t.Errorf("%s %s: %q, %v; want %q", where, name, body, err, want)
			}
		}
	}
	if met.Load() == 0 || spared.Load() != 0 {
		t.Errorf("requests to the router: %d, past it: %d", met.Load(), spared.Load())
	}
}

// If a route is deleted between two lookups, no other server is reached at its address.
func TestRouteGone(t *testing.T) {
	t.Parallel()
	var looks atomic.Int32
	p := Policy{Web: func(string) (string, bool) { return "192.0.2.1:1", looks.Add(1) == 1 }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://app.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Transport(&http.Transport{}, 0).RoundTrip(req); err == nil || !strings.Contains(err.Error(), "the route was deleted") {
		t.Error(err)
	}
}
