package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func openTest(t *testing.T, dir, domain string, named func(string) bool) *Authority {
	t.Helper()
	a, err := Open(Config{Dir: dir, Domain: domain, Names: []string{"localhost", "api.dew.internal"}, Named: named})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func certificateOf(t *testing.T, a *Authority, name string) *tls.Certificate {
	t.Helper()
	c, err := a.TLS().GetCertificate(&tls.ClientHelloInfo{ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// check verifies a certificate for a name as a client does.
func check(a *Authority, c *tls.Certificate, name string) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		return fmt.Errorf("no certificate in %s", a.PEM())
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: time.Now()})
	return err
}

// Every name of the domain gets a certificate that clients accept. Other names get the
// certificate of the domain, unless they have a route and the authority may sign for them.
func TestNames(t *testing.T) {
	a := openTest(t, t.TempDir(), "dew.localhost", func(host string) bool { return host == "shop.example.com" })
	main := certificateOf(t, a, "dew.localhost")
	for name, tt := range map[string]struct {
		accepted, main bool
	}{
		"dew.localhost":          {true, true},
		"api.dew.localhost":      {true, true},
		"API.dew.localhost.":     {true, true},
		"no-route.dew.localhost": {true, true},
		"a.b.dew.localhost":      {true, false},
		"a_b.c.dew.localhost":    {true, false},
		"w.x.y.z.dew.localhost":  {true, false},
		"localhost":              {true, true},
		"127.0.0.1":              {true, true}, // no server name is sent
		"::1":                    {true, true},
		"api.dew.internal":       {true, true},
		"shop.example.com":       {false, true}, // beyond the name constraints
		"other.example.com":      {false, true},
		"evildew.localhost":      {false, true},
		"*.b.dew.localhost":      {false, true},
		"-.b.dew.localhost":      {false, true},
		strings.Repeat("a.", 130) + "dew.localhost": {false, true},
		"": {false, true},
	} {
		asked := name
		if net.ParseIP(name) != nil {
			asked = ""
		}
		c := certificateOf(t, a, asked)
		if (c == main) != tt.main {
			t.Errorf("%s: the certificate of the domain: %v, want %v", name, c == main, tt.main)
		}
		err := check(a, c, name)
		if name == "" {
			err = fmt.Errorf("no name to check")
		}
		if (err == nil) != tt.accepted {
			t.Errorf("%s: %v, want accepted: %v", name, err, tt.accepted)
		}
	}
	if got := a.cert.PermittedDNSDomains; !a.cert.PermittedDNSDomainsCritical || got[0] != "dew.localhost" {
		t.Errorf("name constraints: %v", got)
	}
}

// A single label has no wildcard: its names get certificates of their own.
func TestSingleLabel(t *testing.T) {
	a := openTest(t, t.TempDir(), "lan", nil)
	for _, name := range []string{"lan", "shop.lan", "a.b.lan"} {
		if err := check(a, certificateOf(t, a, name), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that does not trust the name constraints is not needed: the authority itself
// cannot vouch for names outside of the domain.
func TestConstraints(t *testing.T) {
	a := openTest(t, t.TempDir(), "dew.localhost", nil)
	for _, tt := range []struct {
		names     []string
		addresses []net.IP
		check     string
		accepted  bool
	}{
		{[]string{"x.dew.localhost"}, nil, "x.dew.localhost", true},
		{[]string{"bank.example"}, nil, "bank.example", false},
		{[]string{"x.dew.localhost"}, []net.IP{net.IPv4(127, 0, 0, 9)}, "127.0.0.9", true},
		{[]string{"x.dew.localhost"}, []net.IP{net.IPv4(192, 0, 2, 1)}, "192.0.2.1", false},
	} {
		c, err := a.sign(tt.names, tt.addresses)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(a, c, tt.check); (err == nil) != tt.accepted {
			t.Errorf("%v %v: %v, want accepted: %v", tt.names, tt.addresses, err, tt.accepted)
		}
	}
}

// Certificates are created once and renewed a month before they expire, without a
// restart.
func TestRenewal(t *testing.T) {
	for _, name := range []string{"shop.dew.localhost", "a.b.dew.localhost"} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			a := openTest(t, dir, "dew.localhost", nil)
			first := certificateOf(t, a, name)
			for _, tt := range []struct {
				after time.Duration
				fresh bool
			}{
				{0, false},
				{leafLife - leafRenewal - time.Hour, false},
				{2 * time.Hour, true},
				{time.Hour, false},
				{leafLife, true}, // no client connected before its end
			} {
				time.Sleep(tt.after)
				got := certificateOf(t, a, name)
				if (got != first) != tt.fresh {
					t.Errorf("%s after %s: renewed %v, want %v", name, tt.after, got != first, tt.fresh)
				}
				if err := check(a, got, name); err != nil {
					t.Errorf("%s after %s: %v", name, tt.after, err)
				}
				first = got
			}
		})
	}
}

// The authority is created once. A new one replaces it if it expires soon or cannot sign
// for the domain.
func TestReopen(t *testing.T) {
	for name, tt := range map[string]struct {
		after    time.Duration
		domain   string
		replaced string
	}{
		"at once":        {0, "dew.localhost", ""},
		"a year later":   {365 * 24 * time.Hour, "dew.localhost", ""},
		"below":          {0, "team.dew.localhost", ""},
		"another domain": {0, "dew.example.com", "it can sign only for dew.localhost, localhost, api.dew.internal and not for dew.example.com"},
		"at its end":     {authorityLife - authorityRenewal + time.Hour, "dew.localhost", "it expires at"},
		"after the end":  {authorityLife + time.Hour, "dew.localhost", "it expires at"},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			first := openTest(t, dir, "dew.localhost", nil)
			time.Sleep(tt.after)
			second := openTest(t, dir, tt.domain, nil)
			if got := second.Replaced(); !strings.HasPrefix(got, tt.replaced) || got == "" != (tt.replaced == "") {
				t.Errorf("%s: replaced because %q, want %q", name, got, tt.replaced)
			}
			if same := first.Fingerprint() == second.Fingerprint(); same != (tt.replaced == "") {
				t.Errorf("%s: the same authority: %v", name, same)
			}
			if err := check(second, certificateOf(t, second, "api."+tt.domain), "api."+tt.domain); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if third := openTest(t, dir, tt.domain, nil); third.Fingerprint() != second.Fingerprint() || third.Replaced() != "" {
				t.Errorf("%s: replaced again: %s", name, third.Replaced())
			}
		})
	}
}

// The certificates of an authority near its end do not outlive it.
func TestEndOfAuthority(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := openTest(t, dir, "dew.localhost", nil)
		time.Sleep(authorityLife - leafLife/2)
		if c := certificateOf(t, a, "shop.dew.localhost"); c.Leaf.NotAfter.After(a.Expires()) {
			t.Errorf("the certificate ends %s, its authority %s", c.Leaf.NotAfter, a.Expires())
		}
	})
}

// An authority of an older dewd has no name constraints and keeps signing for all routes.
func TestOlderAuthority(t *testing.T) {
	dir := t.TempDir()
	a := openTest(t, dir, "dew.localhost", nil)
	writeOlder(t, dir, a)
	b := openTest(t, dir, "dew.localhost", func(host string) bool { return host == "shop.example.com" })
	if b.Replaced() != "" {
		t.Fatalf("replaced: %s", b.Replaced())
	}
	for name, accepted := range map[string]bool{"shop.example.com": true, "other.example.com": false, "x.dew.localhost": true} {
		if err := check(b, certificateOf(t, b, name), name); (err == nil) != accepted {
			t.Errorf("%s: %v, want accepted: %v", name, err, accepted)
		}
	}
}

func writeOlder(t *testing.T, dir string, a *Authority) {
	t.Helper()
	old := template("dew router authority", time.Now().Add(authorityLife))
	old.IsCA, old.BasicConstraintsValid, old.MaxPathLenZero, old.KeyUsage = true, true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(nil, old, old, a.key.Public(), a.key)
	if err == nil {
		err = writePEM(filepath.Join(dir, certFile), "CERTIFICATE", der, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The key is readable for root alone, even if an earlier one was not.
func TestKeyMode(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir, "dew.localhost", nil)
	key := filepath.Join(dir, keyFile)
	for range 2 {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if err := os.Chmod(key, 0o644); err != nil {
			t.Fatal(err)
		}
		openTest(t, dir, "dew.localhost", nil)
	}
}

// A daemon that was killed while it created the authority creates it again; damaged
// files are reported.
func TestIncomplete(t *testing.T) {
	for name, tt := range map[string]struct {
		damage func(dir string) error
		want   string
	}{
		"only the key":  {func(dir string) error { return os.Remove(filepath.Join(dir, certFile)) }, ""},
		"only the cert": {func(dir string) error { return os.Remove(filepath.Join(dir, keyFile)) }, ""},
		"damaged":       {func(dir string) error { return os.WriteFile(filepath.Join(dir, certFile), []byte("x"), 0o644) }, "move both away"},
	} {
		dir := t.TempDir()
		openTest(t, dir, "dew.localhost", nil)
		if err := tt.damage(dir); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Config{Dir: dir, Domain: "dew.localhost"})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// Clients choose names, so the number of stored certificates is limited.
func TestBound(t *testing.T) {
	a := openTest(t, t.TempDir(), "dew.localhost", nil)
	main := certificateOf(t, a, "dew.localhost")
	for i := range maxLeaves + 10 {
		certificateOf(t, a, fmt.Sprintf("a%d.b.dew.localhost", i))
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("%d certificates", len(a.leaves))
	}
	if certificateOf(t, a, "dew.localhost") != main {
		t.Error("the certificate of the domain was dropped")
	}
}

func TestGiven(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	a, b := openTest(t, dir, "dew.localhost", nil), openTest(t, other, "dew.localhost", nil)
	cert, key := filepath.Join(dir, certFile), filepath.Join(dir, keyFile)
	if _, err := Given(filepath.Join(dir, "none"), key); err == nil {
		t.Error("a certificate that is not there is accepted")
	}
	c, err := Given(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want *Authority) {
		t.Helper()
		got, err := c.GetCertificate(nil)
		if err != nil || Fingerprint(got.Leaf) != want.Fingerprint() {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	move := func(name string) {
		t.Helper()
		if err := os.Rename(filepath.Join(other, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	expect("first", a)
	// A new pair replaces it; half of a pair changes nothing.
	move(certFile)
	if err := os.Chtimes(cert, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	expect("with half of a pair", a)
	move(keyFile)
	expect("after the renewal", b)
}

// FuzzName: no server name makes a handshake fail, and a certificate of a name's own is
// valid for it.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"", "dew.localhost", "a.b.dew.localhost", "*.a.dew.localhost", "a..dew.localhost", "\x00.dew.localhost", "é.dew.localhost", "."} {
		f.Add(seed)
	}
	dir := f.TempDir()
	a, err := Open(Config{Dir: dir, Domain: "dew.localhost", Named: func(string) bool { return true }})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := a.certificate(name)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if a.needsOwn(Host(name)) {
			if err := check(a, c, Host(name)); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}
