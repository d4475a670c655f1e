package route

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// A server other than the router refuses ambiguous requests as well. Its handler sees
// the state of TLS, although a screen is between.
func TestScreenedServer(t *testing.T) {
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "tls %v", r.TLS != nil) })
	l := Secure(testkit.Listen(t), &tls.Config{Certificates: other.TLS.Certificates, MinVersion: tls.VersionTLS12})
	server := Screened(&http.Server{Handler: handler, ReadHeaderTimeout: testkit.Patience})
	go server.Serve(l) //nolint:errcheck // it ends with the test
	defer server.Close()
	ask := func(head string) string {
		t.Helper()
		cfg := other.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		cfg.ServerName = "example.com"
		c := testkit.Open(tls.Dial("tcp", l.Addr().String(), cfg))(t)
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+head); err != nil {
			t.Fatal(err)
		}
		return string(testkit.Must(io.ReadAll(c))(t))
	}
	if got := ask("Content-Length: 0\r\n\r\n"); !strings.HasSuffix(got, "tls true") {
		t.Errorf("a clear request: %s", got)
	}
	if got := ask("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("an ambiguous request: %s", got)
	}
}
