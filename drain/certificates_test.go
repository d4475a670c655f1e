package drain

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/testkit"
)

// authority is a CA that issues certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	var der []byte
	a.key, der = a.issue(name, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = encode("CERTIFICATE", der)
	return a
}

// issue signs a certificate for the loopback address; without an authority it signs
// itself.
func (a *authority) issue(name string, by *authority) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

// pair returns a certificate with its key in PEM.
func (a *authority) pair(name string) (cert, key string) {
	a.t.Helper()
	k, der := a.issue(name, a)
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret)
}

// server returns the configuration of a receiver that requires a client certificate of
// the authority.
func (a *authority) server() *tls.Config {
	a.t.Helper()
	cert, key := a.pair("receiver")
	own, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		a.t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// setTLS changes the certificates of the drain, like an update of the service instance.
func (w *world) setTLS(t TLS) {
	w.mu.Lock()
	w.targets[0].TLS = t
	w.mu.Unlock()
	w.drains.Changed()
}

// newReceiverTLS returns a receiver that calls seen after each handshake.
func newReceiverTLS(t *testing.T, config *tls.Config, seen func(*tls.Conn)) *receiver {
	t.Helper()
	r := &receiver{t: t, address: "127.0.0.1:0", secure: config, seen: seen}
	r.start()
	t.Cleanup(func() { r.end(false) })
	return r
}

// wait waits until the lines 1 to n have arrived.
func (r *receiver) wait(n int) {
	r.t.Helper()
	testkit.EventuallyTrue(r.t, fmt.Sprint(n, " lines have arrived"), func() bool {
		missing, _ := complete(r.lines(), n)
		return missing == 0
	})
}

// logHas waits until a line of the drain in the app's log contains text.
func (w *world) logHas(text string) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, "the log has "+text, func() bool {
		es, err := w.log.NewestOf(w.t.Context(), 1000, logstream.Filter{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range es {
			if e.Source.Type == "LGR" && strings.Contains(string(e.Text), text) {
				return true
			}
		}
		return false
	})
}

// A receiver that requires a client certificate gets all lines once, over TLS, even if
// the certificates change while the drain is running.
func TestClientCertificate(t *testing.T) {
	w := newWorld(t)
	ca := newAuthority(t, "receivers")
	var names []string
	r := newReceiverTLS(t, ca.server(), func(c *tls.Conn) { names = append(names, c.ConnectionState().PeerCertificates[0].Subject.CommonName) })
	cert, key := ca.pair("first")
	w.initial = TLS{Cert: cert, Key: key, CA: ca.pem}
	w.start("syslog-tls://" + r.address)
	w.print(10)
	r.wait(10)
	cert, key = ca.pair("second")
	w.setTLS(TLS{Cert: cert, Key: key, CA: ca.pem})
	testkit.EventuallyTrue(t, "the drain connects with the second certificate", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(names) == 2
	})
	w.print(10)
	r.wait(20)
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(names, []string{"first", "second"}); diff != "" {
		t.Errorf("client certificates (-got +want):\n%s", diff)
	}
	if len(r.got) != 20 {
		t.Errorf("lines received = %v, want 20, each once", r.got)
	}
}

// A certificate that cannot be used is reported once in the app's log. The lines arrive
// after it is corrected.
func TestBadClientCertificate(t *testing.T) {
	w := newWorld(t)
	ca, other := newAuthority(t, "receivers"), newAuthority(t, "others")
	r := newReceiverTLS(t, ca.server(), func(*tls.Conn) {})
	cert, key := ca.pair("app")
	_, wrongKey := ca.pair("app")
	foreign, foreignKey := other.pair("app")
	w.initial = TLS{Cert: "no PEM", Key: key, CA: ca.pem}
	w.start("syslog-tls://" + r.address)
	w.print(5)
	w.logHas("cannot use cert and key of the service's credentials as the client certificate")
	for text, bad := range map[string]TLS{
		"private key does not match public key":                       {cert, wrongKey, ca.pem},
		"ca of the service's credentials has no certificate in PEM":   {cert, key, "no PEM"},
		"certificate signed by unknown authority":                     {cert, key, ""},
		"cannot send to syslog-tls://" + r.address + ": remote error": {foreign, foreignKey, ca.pem},
	} {
		w.setTLS(bad)
		w.logHas(text)
	}
	w.setTLS(TLS{cert, key, ca.pem})
	r.wait(5)
	w.logHas("connected again to syslog-tls://")
}

// An HTTPS drain uses the certificates as well.
func TestClientCertificateHTTPS(t *testing.T) {
	w := newWorld(t)
	ca := newAuthority(t, "receivers")
	got := make(chan string, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.TLS.PeerCertificates[0].Subject.CommonName
	}))
	s.TLS = ca.server()
	s.StartTLS()
	t.Cleanup(s.Close)
	cert, key := ca.pair("first")
	w.initial = TLS{Cert: cert, Key: key, CA: ca.pem}
	w.start("https://" + s.Listener.Addr().String() + "/logs")
	w.print(1)
	if name := <-got; name != "first" {
		t.Errorf("client certificate %s, want first", name)
	}
	cert, key = ca.pair("second")
	w.setTLS(TLS{Cert: cert, Key: key, CA: ca.pem})
	testkit.EventuallyTrue(t, "the drain uses the second certificate", func() bool {
		w.print(1)
		return <-got == "second"
	})
}

func TestReadTLS(t *testing.T) {
	for text, want := range map[string]TLS{
		``:                                    {},
		`null`:                                {},
		`{}`:                                  {},
		`{"cert":"a","key":"b","ca":"c"}`:     {"a", "b", "c"},
		`{"cert":1,"key":{"x":1},"ca":"c"}`:   {CA: "c"},
		`{"CERT":"a","password":"p","ca":""}`: {},
	} {
		if got := ReadTLS(json.RawMessage(text)); got != want {
			t.Errorf("ReadTLS(%s) = %+v, want %+v", text, got, want)
		}
	}
}

func FuzzReadTLS(f *testing.F) {
	f.Add([]byte(`{"cert":"a","key":"b","ca":"c"}`))
	f.Add([]byte(`{"cert":[1]}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = ReadTLS(b).config(x509.NewCertPool())
	})
}
