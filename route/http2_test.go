package route

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/testkit"
)

// h2Client returns a client that uses HTTP/2 without TLS and without an upgrade.
func (w *world) h2Client() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// h2Instance starts an instance that supports only HTTP/2, or both HTTP/2 and HTTP/1.1.
func (w *world) h2Instance(guid string, index int, h http.Handler, both bool) {
	w.t.Helper()
	l := testkit.Listen(w.t)
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	s.Protocols.SetHTTP1(both)
	go func() { _ = s.Serve(l) }()
	w.t.Cleanup(func() { s.Close() })
	w.mu.Lock()
	w.hosts[idOf(guid, index)] = l.Addr().String()
	w.mu.Unlock()
	w.router.Changed(ready(guid, index))
}

func overHTTP2(rt app.Route) app.Route {
	for i := range rt.Destinations {
		rt.Destinations[i].Protocol = app.ProtocolHTTP2
	}
	return rt
}

var proto = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s", r.Proto, b)
})

// Every combination of client and instance protocols works, with bodies.
func TestProtocolsInFrontAndBehind(t *testing.T) {
	w := newWorld(t, routeTo("one", "", "a"), overHTTP2(routeTo("two", "", "b")))
	w.instance("a", 0, proto)
	w.h2Instance("b", 0, proto, false)
	for name, client := range map[string]*http.Client{"HTTP/1.1": w.front.Client(), "HTTP/2.0": w.h2Client()} {
		for host, want := range map[string]string{"one": "HTTP/1.1 body", "two": "HTTP/2.0 body"} {
			for range 3 {
				res, err := client.Do(w.request(http.MethodPost, host, "/", strings.NewReader("body")))
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(b) != want || res.Proto != name {
					t.Errorf("%s to %s: %q over %s, %v; want %q", name, host, b, res.Proto, err, want)
				}
			}
		}
	}
	if n := w.dialsTo(idOf("b", 0)); n > 2 {
		t.Errorf("%d connections were made where one carries all", n)
	}
}

// An instance that does not support the protocol of its destination is a failure, and
// so is one that refuses.
func TestHTTP2Failures(t *testing.T) {
	w := newWorld(t, overHTTP2(routeTo("wrong", "", "a")), overHTTP2(routeTo("refuses", "", "b")), overHTTP2(routeTo("other", "", "c")))
	w.instance("a", 0, proto)
	w.refuses("b", 0)
	w.refuses("c", 0)
	w.h2Instance("c", 1, proto, false)
	for _, host := range []string{"wrong", "refuses"} {
		if res, body := w.get(host, "/"); res.StatusCode != 502 || body != endpointFailure.text {
			t.Errorf("%s: %d %q", host, res.StatusCode, body)
		}
	}
	for range 4 {
		if res, body := w.do(w.request(http.MethodPost, "other", "/", strings.NewReader("x"))); res.StatusCode != 200 || body != "HTTP/2.0 x" {
			t.Errorf("other: %d %q", res.StatusCode, body)
		}
	}
}

// gRPC needs both sides to send at the same time over one request, and a trailer after
// the body. The connection is used for further requests.
func TestStreamsOverHTTP2(t *testing.T) {
	w := newWorld(t, overHTTP2(routeTo("grpc", "", "a")))
	w.h2Instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Te") != "trailers" {
			t.Errorf("TE = %q", r.Header.Get("Te"))
		}
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Trailer", "Grpc-Status")
		rc := http.NewResponseController(rw)
		_ = rc.Flush()
		for buf := make([]byte, 64); ; {
			n, err := r.Body.Read(buf)
			_, _ = rw.Write(buf[:n])
			_ = rc.Flush()
			if err != nil {
				break
			}
		}
		rw.Header().Set("Grpc-Status", "0")
	}), false)
	client := w.h2Client()
	var conns int
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conns++
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	for range 3 {
		pr, pw := io.Pipe()
		req := w.request(http.MethodPost, "grpc", "/svc/Method", pr)
		req.Header.Set("Te", "trailers")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			piece := fmt.Sprintf("piece %d;", i)
			if _, err := io.WriteString(pw, piece); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
				t.Fatalf("got %q, %v, want %q", got, err, piece)
			}
		}
		pw.Close()
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("rest %q, %v, trailer %v", rest, err, res.Trailer)
		}
		res.Body.Close()
	}
	if conns != 1 {
		t.Errorf("%d connections of the client, want 1", conns)
	}
}

// An upgrade request uses HTTP/1.1 to the instance, whatever protocol its destination
// has.
func TestUpgradeBesideHTTP2(t *testing.T) {
	w := newWorld(t, overHTTP2(routeTo("shop", "", "a")))
	w.h2Instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, brw, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("%s: %v", r.Proto, err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(c, brw)
	}), true)
	c := w.raw("GET / HTTP/1.1", "Host: shop.dew.localhost", "Upgrade: echo", "Connection: Upgrade", "", "hello")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(br, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// A client cannot switch a connection to the app to HTTP/2 past the router.
func TestUpgradeToHTTP2IsNotPassedOn(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%q %q %q", r.Header.Get("Upgrade"), r.Header.Get("Connection"), r.Header.Get("Http2-Settings"))
	}))
	c := w.raw("GET / HTTP/1.1", "Host: shop.dew.localhost", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || string(b) != `"" "" ""` {
		t.Errorf("%d %q, %v", res.StatusCode, b, err)
	}
}
