package route

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// tcpRoute returns the route of a port to the web process of each app.
func tcpRoute(port int, apps ...string) app.Route {
	rt := routeTo("", "", apps...)
	rt.GUID, rt.Port = fmt.Sprint(port), port
	for i := range rt.Destinations {
		rt.Destinations[i].Protocol = app.ProtocolTCP
	}
	return rt
}

// testPorts opens the ports of TCP routes at free addresses.
type testPorts struct {
	mu    sync.Mutex
	at    map[int]string
	opens int
	err   error
}

func (h *testPorts) listen(port int) ([]net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opens++
	if h.err != nil {
		return nil, h.err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h.at[port] = l.Addr().String()
	return []net.Listener{l}, nil
}

func (h *testPorts) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *testPorts) address(port int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[port]
}

// serveTCP opens the ports until the test ends or the function is called.
func (w *world) serveTCP(h *testPorts) (stop func()) {
	h.at = map[int]string{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.router.ServeTCP(ctx, h.listen) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("ServeTCP: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// call connects to the port of a route.
func (w *world) call(h *testPorts, port int) *net.TCPConn {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, "the port is open", func() bool { return h.address(port) != "" })
	c, err := net.Dial("tcp", h.address(port))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// tcpInstance starts an instance that uses another protocol than HTTP.
func (w *world) tcpInstance(guid string, index int, serve func(c *net.TCPConn)) {
	w.t.Helper()
	l := testkit.Listen(w.t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	w.mu.Lock()
	w.hosts[idOf(guid, index)] = l.Addr().String()
	w.mu.Unlock()
	w.router.Changed(ready(guid, index))
}

// repeats echoes its input until the end, and then sends goodbye.
func repeats(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_, _ = io.WriteString(c, " goodbye")
}

func wantEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v, want %q", got, err, text)
	}
}

// Connections are distributed to the instances in turn, in both directions. One
// direction can end before the other.
func TestTCPRoute(t *testing.T) {
	w := newWorld(t, tcpRoute(20000, "a"))
	for i := range 3 {
		w.tcpInstance("a", i, repeats)
	}
	var h testPorts
	w.serveTCP(&h)
	for range 6 {
		c := w.call(&h, 20000)
		wantEcho(t, c, "hello")
		wantEcho(t, c, "again")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(c); err != nil || string(rest) != " goodbye" {
			t.Errorf("rest = %q, %v", rest, err)
		}
	}
	for i := range 3 {
		if n := w.dialsTo(idOf("a", i)); n != 2 {
			t.Errorf("instance %d got %d of 6 connections", i, n)
		}
		testkit.EventuallyTrue(t, "no connection is left", func() bool { return w.openTo(idOf("a", i)) == 0 })
	}
}

func TestTCPRouteCarriesMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tcpRoute(20000, "a"))
	w.tcpInstance("a", 0, repeats)
	var h testPorts
	w.serveTCP(&h)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	c := w.call(&h, 20000)
	go func() {
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, append(sent, " goodbye"...)) {
		t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
	}
}

// An instance that refuses a connection has received nothing: another is tried. If
// there is none, the client is disconnected, and the app's log says why.
func TestTCPRouteWithoutInstance(t *testing.T) {
	w := newWorld(t, tcpRoute(20000, "a"), tcpRoute(20001, "b"), tcpRoute(20002, "c"))
	w.refuses("a", 0)
	w.tcpInstance("a", 1, repeats)
	w.refuses("b", 0)
	var h testPorts
	w.serveTCP(&h)
	for range 4 {
		wantEcho(t, w.call(&h, 20000), "hello")
	}
	for _, port := range []int{20001, 20002} {
		if b, err := io.ReadAll(w.call(&h, port)); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("port %d: %q, %v", port, b, err)
		}
	}
	if got := w.router.Stats(); got.Failed != 2 {
		t.Errorf("stats = %+v, want two failures", got)
	}
}

// Ports are opened and closed with their routes. Existing connections stay.
func TestTCPPortsFollowRoutes(t *testing.T) {
	w := newWorld(t, tcpRoute(20000, "a"))
	w.run()
	w.tcpInstance("a", 0, repeats)
	var h testPorts
	w.serveTCP(&h)
	c := w.call(&h, 20000)
	wantEcho(t, c, "before")
	w.registry.set(func() { w.registry.routes = []app.Route{tcpRoute(20001, "a")} })
	wantEcho(t, w.call(&h, 20001), "second")
	testkit.EventuallyTrue(t, "the first port is closed", func() bool {
		c, err := net.Dial("tcp", h.address(20000))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	wantEcho(t, c, "after")
	if got, body := w.get("shop", "/"); got.StatusCode != 404 {
		t.Errorf("a TCP route answers HTTP: %d %q", got.StatusCode, body)
	}
}

// A port that another program uses is reported, and opened when it is free.
func TestTCPPortTaken(t *testing.T) {
	w := newWorld(t, tcpRoute(20000, "a"))
	w.run()
	w.tcpInstance("a", 0, repeats)
	h := testPorts{err: errors.New("the port is taken")}
	w.serveTCP(&h)
	testkit.EventuallyTrue(t, "the trouble is told", func() bool { return w.router.PortError(20000) == "the port is taken" })
	if line := <-w.lines; !strings.Contains(line, "the port is taken; dewd keeps trying") {
		t.Errorf("line = %s", line)
	}
	h.set(nil)
	post(w.router.ports) // instead of waiting for the retry
	wantEcho(t, w.call(&h, 20000), "hello")
	if got := w.router.PortError(20000); got != "" {
		t.Errorf("trouble = %q", got)
	}
	h.set(errors.New("the port is taken"))
	w.registry.set(func() { w.registry.routes = []app.Route{tcpRoute(20001, "a")} })
	testkit.EventuallyTrue(t, "the trouble is told", func() bool { return w.router.PortError(20001) != "" })
	w.registry.set(func() { w.registry.routes = nil })
	testkit.EventuallyTrue(t, "a route that is gone has no trouble", func() bool { return w.router.PortError(20001) == "" })
}

// A connection is closed at once when its instance has ended. While the instance stops,
// the connection is closed when the instance closes its side, and can finish until
// then.
func TestTCPConnectionsEndWithTheInstance(t *testing.T) {
	stopping := ready("a", 0)
	stopping.State, stopping.Ready = runtime.Stopping, false
	down := crashed("a", 0)
	down.State, down.Instance = runtime.Down, ""
	next := ready("a", 0)
	next.Instance, next.Address = "another-0", addressOf("another-0")
	w := newWorld(t, tcpRoute(20000, "a"))
	w.tcpInstance("a", 0, func(c *net.TCPConn) {
		for buf := make([]byte, 64); ; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) == "enough" {
				_ = c.CloseWrite()
				continue
			}
			_, _ = c.Write(buf[:n])
		}
	})
	var h testPorts
	w.serveTCP(&h)
	for name, sts := range map[string][]runtime.Status{"down": {stopping, down}, "replaced": {next}, "crashed and replaced": {crashed("a", 0), next}} {
		w.router.Changed(ready("a", 0))
		c := w.call(&h, 20000)
		wantEcho(t, c, "hello")
		for _, st := range sts[:len(sts)-1] {
			w.router.Changed(st)
			wantEcho(t, c, "still there")
		}
		w.router.Changed(sts[len(sts)-1])
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		testkit.EventuallyTrue(t, name+": no connection is left", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
	// The instance has closed its side before its crash is known, and the client does
	// nothing: no connection can stay open.
	end := func(c net.Conn) {
		if _, err := io.WriteString(c, "enough"); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q, %v", b, err)
		}
	}
	crash := func(net.Conn) { w.router.Changed(crashed("a", 0)) }
	for name, order := range map[string][]func(net.Conn){"first the end": {end, crash}, "first the crash": {crash, end}} {
		w.router.Changed(ready("a", 0))
		c := w.call(&h, 20000)
		wantEcho(t, c, "hello")
		for _, fn := range order {
			fn(c)
		}
		testkit.EventuallyTrue(t, name+": no connection is left", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
}

// Open connections are closed when the daemon exits.
func TestTCPEndsWithTheDaemon(t *testing.T) {
	w := newWorld(t, tcpRoute(20000, "a"))
	w.tcpInstance("a", 0, repeats)
	var h testPorts
	stop := w.serveTCP(&h)
	c := w.call(&h, 20000)
	wantEcho(t, c, "hello")
	stop()
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q, %v", b, err)
	}
	if n := w.openTo(idOf("a", 0)); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if _, err := net.Dial("tcp", h.address(20000)); err == nil {
		t.Error("the port is open")
	}
}
