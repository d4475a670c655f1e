package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/testkit"
)

// secure adds a TLS listener to the router. It returns a client that trusts the
// authority and connects there for any host.
func (w *world) secure(a *certs.Authority) *http.Client {
	w.t.Helper()
	l, c := testkit.Listen(w.t), a.TLS()
	s := Server(w.router)
	s.TLSConfig = c.Clone()
	go func() { _ = s.Serve(Secure(l, c)) }()
	w.t.Cleanup(func() { s.Close() })
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.PEM()) {
		w.t.Fatalf("no certificate in %s", a.PEM())
	}
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testkit.Patience}
}

func openAuthority(t *testing.T, w *world) *certs.Authority {
	t.Helper()
	a, err := certs.Open(certs.Config{Dir: t.TempDir(), Domain: "dew.localhost", Named: w.router.Named})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Every host of the domain has a certificate, even without a route.
func TestTLS(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"), routeTo("*.any", "/x", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("X-Forwarded-Proto"))
	}))
	client := w.secure(openAuthority(t, w))
	for url, want := range map[string]int{
		"https://shop.dew.localhost/": 200, "https://SHOP.dew.localhost/": 200, "https://b.any.dew.localhost/x": 200,
		"https://b.any.dew.localhost/": 404, "https://other.dew.localhost/": 404, "https://a.b.c.dew.localhost/": 404,
	} {
		res, err := client.Get(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || res.ProtoMajor != 2 || want == 200 && string(b) != "https" {
			t.Errorf("%s: %d %s %q", url, res.StatusCode, res.Proto, b)
		}
	}
	if res, err := client.Get("https://shop.example.com/"); err == nil {
		t.Errorf("a host outside of the domain: %d, want an error of the certificate", res.StatusCode)
	}
}
