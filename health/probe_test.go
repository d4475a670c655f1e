package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/testkit"
)

var eth0 = netip.MustParseAddrPort("10.201.0.2:8080")

// fakeNet is a fake instance: a dial function for each address.
type fakeNet map[string]func(ctx context.Context) (net.Conn, error)

func (n fakeNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	answer, ok := n[network+" "+address]
	connecting(ctx)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return answer(ctx)
}

// connecting reports to the probe that the connection attempt has started.
func connecting(ctx context.Context) {
	if trace := httptrace.ContextClientTrace(ctx); trace != nil {
		trace.ConnectStart("tcp", "")
	}
}

func accepts(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	return ours, theirs.Close()
}

func hangs(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Net: "tcp4", Err: ctx.Err()}
}

func fails(err error) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp4", Err: err}
	}
}

// says reads a request and responds with raw bytes. If raw is empty, it does not
// respond; at "close" it closes the connection.
func says(raw string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			_, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				return
			}
			switch raw {
			case "":
				_, _ = io.Copy(io.Discard, theirs) // until the probe closes the connection
			case "close":
			default:
				_, _ = io.WriteString(theirs, raw)
			}
		}()
		return ours, nil
	}
}

// The messages of failed checks for users.
func TestFailureMessages(t *testing.T) {
	const to = "tcp4 10.201.0.2:8080"
	port := func(n fakeNet) Probe { return Port(n.dial, eth0) }
	get := func(path string) func(fakeNet) Probe {
		return func(n fakeNet) Probe { return HTTP(n.dial, eth0, path) }
	}
	tests := []struct {
		name  string
		probe func(fakeNet) Probe
		net   fakeNet
		want  string // empty: healthy
	}{
		{"port open", port, fakeNet{to: accepts}, ""},
		{"port refused", port, fakeNet{}, "port check failed: connection to 10.201.0.2:8080 refused"},
		{"port silent", port, fakeNet{to: hangs}, "port check failed: 10.201.0.2:8080 did not answer within 1s"},
		{"port timed out by the kernel", port, fakeNet{to: fails(syscall.ETIMEDOUT)}, "port check failed: connection to 10.201.0.2:8080 failed: connection timed out"},
		{"port unreachable", port, fakeNet{to: fails(syscall.EHOSTUNREACH)}, "port check failed: connection to 10.201.0.2:8080 failed: no route to host"},
		{"port odd error", port, fakeNet{to: fails(errors.New("out of luck"))}, "port check failed: connection to 10.201.0.2:8080 failed: out of luck"},
		{"port on loopback", port, fakeNet{"tcp4 127.0.0.1:8080": accepts}, "port check failed: the app listens only on 127.0.0.1:8080; it must listen on 0.0.0.0"},
		{"port on loopback of IPv6", port, fakeNet{"tcp6 [::1]:8080": accepts}, "port check failed: the app listens only on [::1]:8080; it must listen on 0.0.0.0"},

		{"http 200", get("/health"), fakeNet{to: says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")}, ""},
		{"http 200 after a hint", get("/health"), fakeNet{to: says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")}, ""},
		{"http 200 with a broken body", get("/health"), fakeNet{to: says("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok")}, ""},
		{"http 500", get("/health"), fakeNet{to: says("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")}, "http check failed: GET /health answered 500, want 200"},
		{"http 204", get("/"), fakeNet{to: says("HTTP/1.1 204 No Content\r\n\r\n")}, "http check failed: GET / answered 204, want 200"},
		{"http redirect", get("/health"), fakeNet{to: says("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")}, "http check failed: GET /health answered 302, want 200"},
		{"http silent", get("/health"), fakeNet{to: says("")}, "http check failed: GET /health did not answer within 1s"},
		{"http not accepted", get("/health"), fakeNet{to: hangs}, "http check failed: 10.201.0.2:8080 did not answer within 1s"},
		{"http closed", get("/health"), fakeNet{to: says("close")}, "http check failed: GET /health failed: the app closed the connection without a response"},
		{"http endless header", get("/health"), fakeNet{to: says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxAnswer))}, "http check failed: GET /health failed: the first 128 KiB of the response contain no complete header"},
		{"http not http", get("/health"), fakeNet{to: says("SSH-2.0-x\r\n\r\n")}, `http check failed: GET /health failed: malformed HTTP response "SSH-2.0-x"`},
		{"http refused", get("/health"), fakeNet{}, "http check failed: connection to 10.201.0.2:8080 refused"},
		{"http on loopback", get("/health"), fakeNet{"tcp4 127.0.0.1:8080": accepts}, "http check failed: the app listens only on 127.0.0.1:8080; it must listen on 0.0.0.0"},
		{"http without a path", get(""), fakeNet{to: says("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")}, "http check failed: GET / answered 404, want 200"},
		{"http with a broken path", get("/%zz"), fakeNet{to: says("")}, `http check failed: GET /%zz failed: invalid URL escape "%zz"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := ""
				if err := tt.probe(tt.net)(t.Context(), time.Second); err != nil {
					got = err.Error()
				}
				if got != tt.want {
					t.Errorf("probe said %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A cancelled probe returns the context's error and no failure.
func TestProbeCanceled(t *testing.T) {
	for name, probe := range map[string]Probe{
		"port":        Port(fakeNet{"tcp4 10.201.0.2:8080": hangs}.dial, eth0),
		"http":        HTTP(fakeNet{"tcp4 10.201.0.2:8080": hangs}.dial, eth0, "/"),
		"http silent": HTTP(fakeNet{"tcp4 10.201.0.2:8080": says("")}.dial, eth0, "/"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if err := probe(ctx, time.Minute); err != context.Canceled { //nolint:errorlint // it must come bare
					t.Errorf("error = %v, want context canceled", err)
				}
			})
		})
	}
}

// The app receives this request over a real socket.
func TestHTTPRequest(t *testing.T) {
	seen := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprintf("%s %s host=%s agent=%s close=%t", r.Method, r.RequestURI, r.Host, r.UserAgent(), r.Close)
		_, _ = io.WriteString(w, strings.Repeat("x", 4*maxAnswer)) // more than the probe reads
	}))
	defer srv.Close()
	addr := netip.MustParseAddrPort(srv.Listener.Addr().String())
	if err := HTTP((&net.Dialer{}).DialContext, addr, "/health?deep=1")(t.Context(), testkit.Patience); err != nil {
		t.Fatalf("probe of a healthy server: %v", err)
	}
	want := fmt.Sprintf("GET /health?deep=1 host=%s agent=dew-health close=true", addr)
	if got := <-seen; got != want {
		t.Errorf("request = %s, want %s", got, want)
	}
}

// An endless body must not block a probe longer than its timeout after the status is
// known.
func TestHTTPEndlessBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := fakeNet{"tcp4 10.201.0.2:8080": says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n", 1000))}
		if err := HTTP(n.dial, eth0, "/")(t.Context(), time.Second); err != nil {
			t.Errorf("probe = %v, want healthy", err)
		}
		synctest.Wait() // its goroutines have exited: otherwise the bubble would fail
	})
}

func TestPortOverRealSocket(t *testing.T) {
	l := testkit.Listen(t)
	addr := netip.MustParseAddrPort(l.Addr().String())
	// Another loopback address stands for eth0. The listener is bound to 127.0.0.1
	// only, so the kernel refuses this one.
	outside := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), addr.Port())
	dial := (&net.Dialer{}).DialContext

	if err := Port(dial, addr)(t.Context(), testkit.Patience); err != nil {
		t.Errorf("probe of an open port: %v", err)
	}
	want := fmt.Sprintf("port check failed: the app listens only on %s; it must listen on 0.0.0.0", addr)
	if err := Port(dial, outside)(t.Context(), testkit.Patience); err == nil || err.Error() != want {
		t.Errorf("probe from outside = %v, want %q", err, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want = fmt.Sprintf("port check failed: connection to %s refused", outside)
	err := Port(dial, outside)(t.Context(), testkit.Patience)
	if err == nil || err.Error() != want {
		t.Errorf("probe of a closed port = %v, want %q", err, want)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v does not unwrap to ECONNREFUSED", err)
	}
}
