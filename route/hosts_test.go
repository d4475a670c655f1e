package route

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

// The names of the API lead to the API, over HTTP and TLS. A route with such a host was
// created before they were reserved and keeps it; a wildcard route does not get it.
func TestAPIHosts(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"), routeTo("*", "", "a"), routeTo("login", "", "a"), routeTo("uaa", "/own", "a"))
	w.router.c.API = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, err := r.Cookie("dew_console")
		fmt.Fprintf(rw, "API tls=%t cookie=%t", r.TLS != nil, err == nil)
	})
	for _, host := range []string{"api.dew.localhost", "login.dew.localhost", "uaa.dew.localhost"} {
		w.router.apiHosts[host] = true
	}
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, err := r.Cookie("dew_console")
		fmt.Fprintf(rw, "app cookie=%t", err == nil)
	}))
	secure := w.secure(openAuthority(t, w))
	http1 := w.secure(openAuthority(t, w))
	http1.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	for _, tt := range []struct{ host, path, want string }{
		{"api.dew.localhost", "/v3/info", "API tls=true cookie=true"},
		{"API.dew.localhost", "/", "API tls=true cookie=true"},
		{"uaa.dew.localhost", "/oauth/token", "API tls=true cookie=true"},
		{"uaa.dew.localhost", "/own/x", "app cookie=false"},
		{"login.dew.localhost", "/", "app cookie=false"},
		{"other.dew.localhost", "/", "app cookie=false"},
		{"x.api.dew.localhost", "/", "app cookie=false"},
	} {
		for _, client := range []*http.Client{secure, http1} {
			req, err := http.NewRequest(http.MethodGet, "https://"+tt.host+tt.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.AddCookie(&http.Cookie{Name: "dew_console", Value: "secret"})
			res, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", tt.host, err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if string(b) != tt.want {
				t.Errorf("%s%s over %s: %q, want %q", tt.host, tt.path, res.Proto, b, tt.want)
			}
		}
	}
	if res, body := w.get("api", "/v3/info"); res.StatusCode != http.StatusOK || body != "API tls=false cookie=false" {
		t.Errorf("without TLS: %d %q", res.StatusCode, body)
	}
}
