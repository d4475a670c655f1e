package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// secure adds a TLS listener to the router. It returns a client that trusts pool and
// connects there for any host.
func (w *world) secure(c *tls.Config, pool *x509.CertPool) *http.Client {
	w.t.Helper()
	l := testkit.Listen(w.t)
	s := Server(w.router)
	s.TLSConfig = c.Clone()
	go func() { _ = s.Serve(Secure(l, c)) }()
	w.t.Cleanup(func() { s.Close() })
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testkit.Patience}
}

func trust(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		t.Fatalf("no certificate in %s", file)
	}
	return pool
}

// Hosts of routes get certificates that are valid for clients that trust the authority;
// other hosts get none. A later daemon uses the same authority.
func TestAuthority(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"), routeTo("*.any", "/x", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("X-Forwarded-Proto"))
	}))
	dir := t.TempDir()
	var serial []string
	for range 2 {
		a, err := OpenAuthority(dir, w.router.Named)
		if err != nil {
			t.Fatal(err)
		}
		serial = append(serial, a.cert.SerialNumber.String())
		client := w.secure(a.Config(), trust(t, filepath.Join(dir, "router-ca.pem")))
		for url, want := range map[string]int{
			"https://shop.dew.localhost/": 200, "https://SHOP.dew.localhost/": 200, "https://b.any.dew.localhost/x": 200,
			"https://b.any.dew.localhost/": 404, "https://other.dew.localhost/": 0,
		} {
			res, err := client.Get(url)
			if want == 0 {
				if err == nil {
					t.Errorf("%s: %d, want no certificate", url, res.StatusCode)
				}
				continue
			}
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
	}
	if serial[0] != serial[1] {
		t.Error("the second daemon made an authority of its own")
	}
	if info, err := os.Stat(filepath.Join(dir, "router-ca.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key: %v, %v", info, err)
	}
}

// Certificates are created once, renewed before they expire, and their number is
// limited.
func TestLeaves(t *testing.T) {
	a, err := OpenAuthority(t.TempDir(), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	a.now = func() time.Time { return now }
	leaf := func(host string) *tls.Certificate {
		t.Helper()
		c, err := a.leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := leaf("a.example.com")
	if leaf("A.example.com.") != first {
		t.Error("made twice")
	}
	now = now.Add(leafLife - leafRenewal + time.Minute)
	if leaf("a.example.com") == first {
		t.Error("not renewed")
	}
	if _, err := a.leaf(""); err == nil {
		t.Error("a certificate for no name")
	}
}

func TestGivenCertificate(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, says("hi"))
	dir := t.TempDir()
	a, err := OpenAuthority(dir, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, "router-ca.pem"), filepath.Join(dir, "router-ca.key")
	if _, err := GivenCertificate(filepath.Join(dir, "none"), key); err == nil {
		t.Error("a certificate that is not there is accepted")
	}
	c, err := GivenCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.GetCertificate(nil)
	if err != nil || got.Leaf.SerialNumber.Cmp(a.cert.SerialNumber) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	// A new pair replaces it; half of a pair changes nothing.
	other := t.TempDir()
	b, err := OpenAuthority(other, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	move := func(name string) {
		if err := os.Rename(filepath.Join(other, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	move("router-ca.pem")
	if err := os.Chtimes(cert, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.GetCertificate(nil); err != nil || got.Leaf.SerialNumber.Cmp(a.cert.SerialNumber) != 0 {
		t.Errorf("with half of a pair: %v, %v", got, err)
	}
	move("router-ca.key")
	if got, err := c.GetCertificate(nil); err != nil || got.Leaf.SerialNumber.Cmp(b.cert.SerialNumber) != 0 {
		t.Errorf("after the renewal: %v, %v", got, err)
	}
}
