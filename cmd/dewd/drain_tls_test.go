//go:build integration

package main

import (
	"bufio"
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
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/services/servicestest"
)

// drainReceiver receives log lines over TLS from clients with a certificate of its own
// authority.
type drainReceiver struct {
	t      *testing.T
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	listen net.Listener

	mu    sync.Mutex
	lines []string // guarded by mu: name of the client and the line
}

func newDrainReceiver(t *testing.T) *drainReceiver {
	t.Helper()
	r := &drainReceiver{t: t}
	der, key := r.issue("authority", nil, nil)
	r.key = key
	var err error
	if r.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	der, key = r.issue("receiver", r.ca, r.key)
	clients := x509.NewCertPool()
	clients.AddCert(r.ca)
	r.listen, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.listen.Close() })
	go func() {
		for {
			c, err := r.listen.Accept()
			if err != nil {
				return
			}
			go r.receive(c.(*tls.Conn))
		}
	}()
	return r
}

// issue returns a certificate for the loopback address and its key. Without a signer it
// is an authority.
func (r *drainReceiver) issue(name string, by *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if by == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		by, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		r.t.Fatal(err)
	}
	return der, key
}

// credentials returns the response of a broker to a binding, with a client certificate.
func (r *drainReceiver) credentials(name string) string {
	r.t.Helper()
	der, key := r.issue(name, r.ca, r.key)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		r.t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	b, err := json.Marshal(map[string]any{
		"syslog_drain_url": "syslog-tls://" + r.listen.Addr().String(),
		"credentials":      map[string]string{"cert": encode("CERTIFICATE", der), "key": encode("PRIVATE KEY", secret), "ca": encode("CERTIFICATE", r.ca.Raw)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *drainReceiver) receive(c *tls.Conn) {
	defer c.Close()
	if c.Handshake() != nil {
		return
	}
	name := c.ConnectionState().PeerCertificates[0].Subject.CommonName
	for lines := bufio.NewScanner(c); lines.Scan(); {
		r.mu.Lock()
		r.lines = append(r.lines, name+": "+lines.Text())
		r.mu.Unlock()
	}
}

// has returns an error if no line of a client has a text.
func (r *drainReceiver) has(client, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if strings.HasPrefix(line, client+": ") && strings.Contains(line, text) {
			return nil
		}
	}
	return fmt.Errorf("%q of client %s is not among\n%s", text, client, strings.Join(r.lines, "\n"))
}

// A broker returns a log drain with a client certificate. The lines of the app arrive at
// a receiver that requires it, and a new binding uses its new certificate.
func TestDrainWithClientCertificate(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	r := newDrainReceiver(t)
	broker := servicestest.New(`{"services":[{"id":"o1","name":"archive","description":"d","bindable":true,"requires":["syslog_drain"],"plans":[{"id":"p1","name":"small","description":"d"}]}]}`)
	server := httptest.NewServer(broker)
	t.Cleanup(server.Close)
	w.push("shop", "")
	w.awaitResponse("shop", "/", "web 0")
	w.dewWith(broker.Password, "create-service-broker", "logs", broker.Username, server.URL, "--password-stdin")
	w.dew("enable-service-access", "archive")
	w.dew("create-service", "archive", "small", "mine")
	for _, client := range []string{"first", "second"} {
		broker.On(servicestest.Bind, servicestest.Behaviour{Body: r.credentials(client)})
		w.dew("bind-service", "shop", "mine")
		w.prints("shop", "line-of-"+client, 2)
		w.eventually("the line arrives with the certificate "+client, func() error { return r.has(client, "line-of-"+client+"-1") })
		w.dew("unbind-service", "shop", "mine")
	}
	if err := r.has("first", "line-of-second"); err == nil {
		t.Error("the certificate of the first binding was used after the second one")
	}
}
