package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// fakeRegistry has routes in memory.
type fakeRegistry struct {
	mu        sync.Mutex
	apps      []app.App
	processes map[string][]app.Process
	domains   []app.Domain
	routes    []app.Route
	err       error
	listeners []func(string)
}

func (f *fakeRegistry) Apps() ([]app.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.apps), f.err
}

func (f *fakeRegistry) Processes(guid string) ([]app.Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.processes[guid]), f.err
}

func (f *fakeRegistry) Domains() ([]app.Domain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.domains), f.err
}

func (f *fakeRegistry) Routes() ([]app.Route, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.routes), f.err
}

func (f *fakeRegistry) ListenRoutes(fn func(string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, fn)
}

// set changes the registry like a commit, and calls the listeners.
func (f *fakeRegistry) set(change func()) {
	f.mu.Lock()
	change()
	ls := slices.Clone(f.listeners)
	f.mu.Unlock()
	for _, fn := range ls {
		fn("r")
	}
}

// routeTo returns the route host.dew.localhost/path to the web process of each app.
func routeTo(host, path string, apps ...string) app.Route {
	rt := app.Route{GUID: host + path, Domain: "d", Host: host, Path: path}
	for _, a := range apps {
		rt.Destinations = append(rt.Destinations, app.Destination{App: a, ProcessType: app.Web, Protocol: "http1"})
	}
	return rt
}

var errRefused = errors.New("connection refused")

// world is a router with a real server in front and real servers as instances.
type world struct {
	t        testing.TB
	registry *fakeRegistry
	router   *Router
	front    *httptest.Server
	lines    chan string // access lines, while Run is running

	mu    sync.Mutex
	hosts map[runtime.InstanceID]string // the real address of an instance (none: refuses)
	dials map[runtime.InstanceID]int
	open  map[runtime.InstanceID]int // number of connections
	bad   []string                   // unexpected dials

	refusal  error             // error of instances that refuse connections (nil: errRefused)
	loopback map[string]string // servers on the loopback address of all instances

	newest *countedConn // the last dialled connection
}

func newWorld(t testing.TB, routes ...app.Route) *world {
	t.Helper()
	w := &world{
		t:        t,
		registry: &fakeRegistry{domains: []app.Domain{{GUID: "d", Name: "dew.localhost"}}, routes: routes},
		lines:    make(chan string, 10_000),
		hosts:    map[runtime.InstanceID]string{},
		dials:    map[runtime.InstanceID]int{},
		open:     map[runtime.InstanceID]int{},
	}
	r, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	w.router = r
	r.idle = testkit.Patience // idle connections stay open, even on a slow machine
	w.front = httptest.NewUnstartedServer(nil)
	w.front.Config = Server(r)
	w.front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	w.front.Listener = Screen(w.front.Listener)
	w.front.Start()
	t.Cleanup(w.front.Close)
	return w
}

func (w *world) config() Config {
	return Config{
		Registry:  w.registry,
		Instances: func(string) []runtime.Status { return nil },
		Dial:      w.dial,
		Log:       w.write,
		Logger:    slog.New(slog.DiscardHandler),
	}
}

func (w *world) write(_ string, es ...logstream.Envelope) error {
	for _, e := range es {
		select {
		case w.lines <- e.String():
		default: // a benchmark does not read them
		}
	}
	return nil
}

// run runs the router until the test ends.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.router.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

func (w *world) dial(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dials[id]++
	host, ok := w.hosts[id]
	refusal := cmp.Or(w.refusal, errRefused)
	if inner, found := w.loopback[address]; found {
		host, ok = inner, true
	} else if ap, err := netip.ParseAddrPort(address); err != nil || network != "tcp" || ap.Addr() != addressOf(id) || ap.Port() != 8080 {
		w.bad = append(w.bad, fmt.Sprintf("%s: %s %s", id, network, address))
	}
	w.mu.Unlock()
	if !ok {
		return nil, refusal
	}
	c, err := new(net.Dialer).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	w.add(id, 1)
	cc := &countedConn{Conn: c, closed: sync.OnceFunc(func() { w.add(id, -1) })}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = cc
	return cc, nil
}

func (w *world) add(id runtime.InstanceID, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[id] += n
}

func (w *world) openTo(id runtime.InstanceID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[id]
}

func (w *world) dialsTo(id runtime.InstanceID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials[id]
}

type countedConn struct {
	net.Conn
	closed func()
	broken atomic.Bool // writes fail, reads do not notice it yet
}

func (c *countedConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// CloseWrite closes one direction.
func (c *countedConn) CloseWrite() error { return closeWrite(c.Conn) }

// SyscallConn returns the socket.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

func idOf(guid string, index int) runtime.InstanceID {
	return runtime.InstanceID(fmt.Sprintf("%s-%d", guid, index))
}

func addressOf(id runtime.InstanceID) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 201, id[0], id[len(id)-1]})
}

// ready returns the status of a running instance of the app's web process.
func ready(guid string, index int) runtime.Status {
	id := idOf(guid, index)
	return runtime.Status{
		Slot: runtime.SlotID{Process: guid, Index: index}, App: guid, Type: app.Web, Instance: id,
		State: runtime.Running, Ready: true, Address: addressOf(id), Ports: []int{8080},
	}
}

// crashed returns the status of the same instance after a crash.
func crashed(guid string, index int) runtime.Status {
	st := ready(guid, index)
	st.State, st.Ready = runtime.Crashed, false
	return st
}

// instance starts a server as an instance of an app and adds it to the router.
func (w *world) instance(guid string, index int, h http.Handler) *httptest.Server {
	w.t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	w.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	w.mu.Lock()
	w.hosts[idOf(guid, index)] = s.Listener.Addr().String()
	w.mu.Unlock()
	w.router.Changed(ready(guid, index))
	return s
}

// refuses adds an instance to the table that refuses connections.
func (w *world) refuses(guid string, index int) { w.router.Changed(ready(guid, index)) }

func says(text string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) })
}

// breaksOff accepts requests and closes the connection.
func breaksOff(seen *sync.Map) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.Method, true)
		panic(http.ErrAbortHandler)
	})
}

// request returns a request for http://<host>.dew.localhost<path>.
func (w *world) request(method, host, path string, body io.Reader) *http.Request {
	w.t.Helper()
	req, err := http.NewRequest(method, w.front.URL+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Host = host + ".dew.localhost:8080"
	return req
}

// do sends a request and returns the response and its body.
func (w *world) do(req *http.Request) (*http.Response, string) {
	w.t.Helper()
	res, err := w.front.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(b)
}

func (w *world) get(host, path string) (*http.Response, string) {
	w.t.Helper()
	return w.do(w.request(http.MethodGet, host, path, nil))
}

// raw returns a bare connection to the router, for requests that HTTP clients do not
// send.
func (w *world) raw(lines ...string) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.front.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		w.t.Fatal(err)
	}
	return c
}
