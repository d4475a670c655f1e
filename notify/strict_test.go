package notify

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
)

// Duplicate keys and invalid UTF-8 are refused like any malformed body.
func TestUnclearBodies(t *testing.T) {
	w := newHTTPWorld(t)
	token := w.sender()
	for _, body := range []string{
		`{"name":"a","name":"b","html":"h"}`, `{"name":"a","html":"h","metadata":{"k":1,"k":2}}`,
		"{\"name\":\"\xff\",\"html\":\"h\"}", `{"name":"\ud800","html":"h"}`,
	} {
		w.do(token, "POST", "/templates", body).want(t, body, 400, errorJSON(notParsed))
	}
	for _, body := range []string{`{"name":"a","name":"b"}`, `{"name":"a","NAME":"b"}`, "{\"name\":\"\xc3\"}", `{"name":"\udc00"}`} {
		w.doV2(token, "POST", "/senders", body).want(t, body, 400, errorJSON(badBody))
	}
	for body, says := range map[string]string{
		`{"global_unsubscribe":true,"global_unsubscribe":false}`: "duplicate key", `{"clients":{"c":{"k":{"email":true,"EMAIL":false}}}}`: "duplicate key",
		`{"clients":{"\ud800":{"k":{"email":true}}}}`: "invalid UTF-8", "{\"clients\":{\"\xff\":{\"k\":{\"email\":true}}}}": "invalid UTF-8",
	} {
		if _, err := readPreferenceChange([]byte(body)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", body, err, says)
		}
	}
	w.do(token, "POST", "/users/%FF", `{"kind_id":"k","text":"t"}`).want(t, "path", 400, errorJSON("Request address is not valid UTF-8"))
}

// A body that arrives too slowly gets a response, in both versions.
func TestSlowBody(t *testing.T) {
	w := newHTTPWorld(t)
	token := w.sender()
	server := httptest.NewServer(inbound.Rate{Patience: 200 * time.Millisecond, BytesPerSecond: 500}.Bodies(w.s.Handler()))
	t.Cleanup(server.Close)
	for version, path := range map[int]string{delivery.V1: "/templates", delivery.V2: "/senders"} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%s: %d\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", path, VersionHeader, version, token)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusRequestTimeout || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("version %d: %+v, %v, want 408", version, res, err)
		}
		c.Close()
	}
}
