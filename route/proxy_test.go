package route

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/testkit"
)

func TestInstancesTakeTurns(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	for i := range 3 {
		w.instance("a", i, says(fmt.Sprint(i)))
	}
	got := map[string]int{}
	for range 9 {
		_, body := w.get("shop", "/")
		got[body]++
	}
	if got["0"] != 3 || got["1"] != 3 || got["2"] != 3 {
		t.Errorf("answers by instance = %v, want 3 each", got)
	}
	for i := range 3 {
		if n := w.dialsTo(idOf("a", i)); n != 1 {
			t.Errorf("instance %d was dialled %d times for 3 requests, want 1: connections are kept", i, n)
		}
	}
	if len(w.bad) > 0 {
		t.Errorf("dials = %v", w.bad)
	}
}

// A route with two apps distributes its requests between their instances.
func TestTwoDestinations(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a", "b"))
	w.instance("a", 0, says("a"))
	w.instance("b", 0, says("b"))
	got := map[string]int{}
	for range 4 {
		_, body := w.get("shop", "/")
		got[body]++
	}
	if got["a"] != 2 || got["b"] != 2 {
		t.Errorf("answers by app = %v, want 2 each", got)
	}
}

// The router's own error responses are constant: the same body each time, with the name
// of the failure in a header.
func TestFailures(t *testing.T) {
	var seen sync.Map
	w := newWorld(t, routeTo("shop", "", "a"), routeTo("empty", "", "b"), routeTo("broken", "", "c"),
		routeTo("aimless", ""), routeTo("refusing", "", "d"))
	w.instance("a", 0, says("hello"))
	w.instance("c", 0, breaksOff(&seen))
	w.refuses("d", 0)
	for _, c := range []struct {
		host   string
		status int
		name   string
		body   string
	}{
		{"shop", 200, "", "hello"},
		{"unknown", 404, "unknown_route", "404 Not Found: Requested route does not exist.\n"},
		{"aimless", 404, "unknown_route", "404 Not Found: Requested route does not exist.\n"},
		{"empty", 503, "no_endpoints", "503 Service Unavailable: Requested route has no available endpoints.\n"},
		{"broken", 502, "endpoint_failure", "502 Bad Gateway: Registered endpoint failed to handle the request.\n"},
		{"refusing", 502, "endpoint_failure", "502 Bad Gateway: Registered endpoint failed to handle the request.\n"},
	} {
		res, body := w.get(c.host, "/")
		if res.StatusCode != c.status || res.Header.Get("X-Cf-RouterError") != c.name || body != c.body {
			t.Errorf("%s: %d %q %q, want %d %q %q", c.host, res.StatusCode, res.Header.Get("X-Cf-RouterError"), body, c.status, c.name, c.body)
		}
	}
	if got := w.router.Stats(); got.Requests != 6 || got.Failed != 5 {
		t.Errorf("stats = %+v, want 6 requests, 5 failed", got)
	}
}

// An instance that refuses the connection has received nothing. Any request can go to
// another one, because its body is unread.
func TestRefusedRequestGoesElsewhere(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		w := newWorld(t, routeTo("shop", "", "a"))
		w.refuses("a", 0)
		w.refuses("a", 1)
		w.instance("a", 2, echo)
		for range 6 {
			res, body := w.do(w.request(method, "shop", "/", strings.NewReader("all of it")))
			if res.StatusCode != 200 || body != "all of it" {
				t.Errorf("%s: %d %q", method, res.StatusCode, body)
			}
		}
		if w.router.Stats().Retries == 0 {
			t.Errorf("%s: no retries", method)
		}
	}
}

// At most three instances are tried: a request does not try all instances of a large
// app.
func TestAttemptsAreBounded(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	for i := range 5 {
		w.refuses("a", i)
	}
	if res, _ := w.get("shop", "/"); res.StatusCode != http.StatusBadGateway {
		t.Errorf("status = %d, want 502", res.StatusCode)
	}
	sum := 0
	for i := range 5 {
		sum += w.dialsTo(idOf("a", i))
	}
	if sum != maxAttempts {
		t.Errorf("instances dialled = %d, want %d", sum, maxAttempts)
	}
}

// A request that an instance has received is repeated only if that is safe.
func TestBrokenOffRequest(t *testing.T) {
	for _, c := range []struct {
		method string
		body   string
		status int
	}{
		{http.MethodGet, "", 200},
		{http.MethodHead, "", 200},
		{http.MethodOptions, "", 200},
		{http.MethodPost, "", 502},
		{http.MethodPost, "order", 502},
		{http.MethodDelete, "", 502},
		{http.MethodGet, "a body that was read", 502},
	} {
		t.Run(c.method+" "+c.body, func(t *testing.T) {
			w := newWorld(t, routeTo("shop", "", "a"))
			var seen sync.Map
			w.instance("a", 0, breaksOff(&seen))
			w.instance("a", 1, echo)
			w.aim("shop", 0)
			res, _ := w.do(w.request(c.method, "shop", "/", bodyOf(c.body)))
			if _, ok := seen.Load(c.method); !ok {
				t.Fatal("the first instance was not asked")
			}
			if res.StatusCode != c.status {
				t.Errorf("status = %d, want %d", res.StatusCode, c.status)
			}
		})
	}
}

// aim makes the next request start at an instance.
func (w *world) aim(host string, index uint32) {
	w.router.table.Load().match(host+".dew.localhost", "/").turn.Store(index - 1)
}

func bodyOf(s string) io.Reader {
	if s == "" {
		return nil
	}
	return strings.NewReader(s)
}

// No request is lost if the instance closed an idle connection.
func TestKeptConnectionThatWasClosed(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	s := w.instance("a", 0, echo)
	for i := range 20 {
		res, body := w.do(w.request(http.MethodPost, "shop", "/", strings.NewReader("x")))
		if res.StatusCode != 200 || body != "x" {
			t.Fatalf("request %d: %d %q", i, res.StatusCode, body)
		}
		s.CloseClientConnections()
		testkit.EventuallyTrue(t, "the end of the connection is seen", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
}

// If the connection had just been closed, nothing was sent. The request is repeated
// with its body, whatever its method, even without another instance.
func TestNothingSent(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, echo)
	for i := range 5 {
		res, body := w.do(w.request(http.MethodPost, "shop", "/", strings.NewReader("order")))
		if res.StatusCode != 200 || body != "order" {
			t.Errorf("request %d: %d %q", i, res.StatusCode, body)
		}
		w.mu.Lock()
		w.newest.broken.Store(true)
		w.mu.Unlock()
	}
	if n := w.dialsTo(idOf("a", 0)); n != 5 {
		t.Errorf("dials = %d, want 5", n)
	}
}

// A request that selected its instance just before the withdrawal is sent after it, and
// leaves no connection open.
func TestLateRequestLeavesNoConnection(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, says("late"))
	e := w.router.table.Load().match("shop.dew.localhost", "/")
	chosen, _ := e.pick(nil)
	w.router.Changed(crashed("a", 0))
	x := &exchange{router: w.router, entry: e}
	req := httptest.NewRequest(http.MethodGet, "http://shop.dew.localhost/", nil)
	res, err := x.askInstance(req, chosen)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || string(b) != "late" {
		t.Errorf("%q, %v", b, err)
	}
	if n := w.openTo(idOf("a", 0)); n != 1 {
		t.Fatalf("%d connections are open before the request has ended, want 1", n)
	}
	x.finish(req)
	if n := w.openTo(idOf("a", 0)); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

func TestHeadersToTheApp(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	var got *http.Request
	w.instance("a", 3, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		got = r
		rw.Header().Set("X-Vcap-Request-Id", "the app's own")
		rw.Header().Set("Connection", "X-Between")
		rw.Header().Set("X-Between", "hop")
		rw.WriteHeader(http.StatusTeapot)
	}))
	req := w.request(http.MethodGet, "Shop", "/a%2Fb//c?x=1;y&z=%zz", nil)
	for k, v := range map[string]string{
		"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Host": "front", "X-CF-ApplicationID": "forged", "X-CF-InstanceIndex": "forged",
		"X-CF-InstanceId": "forged", "X-Vcap-Request-Id": "forged", "Connection": "X-Mine, X-CF-InstanceId", "X-Mine": "hop",
		"Te": "trailers", "Proxy-Connection": "keep-alive", "X-Own": "kept",
	} {
		req.Header.Set(k, v)
	}
	res, _ := w.do(req)
	if got.Host != "Shop.dew.localhost:8080" || got.RequestURI != "/a%2Fb//c?x=1;y&z=%zz" {
		t.Errorf("host %q, uri %q", got.Host, got.RequestURI)
	}
	for k, want := range map[string]string{
		"X-Forwarded-For": "^192\\.0\\.2\\.7, 127\\.0\\.0\\.1$", "X-Forwarded-Proto": "^http$", "X-Forwarded-Host": "^front$",
		"X-Cf-Applicationid": "^a$", "X-Cf-Instanceindex": "^3$", "X-Cf-Instanceid": "^a-3$",
		"X-Vcap-Request-Id": "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$",
		"X-B3-Traceid":      "^[0-9a-f]{32}$", "X-B3-Spanid": "^[0-9a-f]{16}$",
		"X-Own": "^kept$", "X-Mine": "^$", "Proxy-Connection": "^$", "Te": "^trailers$", "Accept-Encoding": "^gzip$",
	} {
		if v := strings.Join(got.Header[k], "|"); !regexp.MustCompile(want).MatchString(v) {
			t.Errorf("%s = %q, want %s", k, v, want)
		}
	}
	if res.StatusCode != http.StatusTeapot || res.Header.Get("X-Between") != "" {
		t.Errorf("answer: %d, X-Between %q", res.StatusCode, res.Header.Get("X-Between"))
	}
	if v := res.Header["X-Vcap-Request-Id"]; len(v) != 1 || v[0] != got.Header.Get("X-Vcap-Request-Id") {
		t.Errorf("X-Vcap-Request-Id to the client = %q", v)
	}
}

func TestTraceOfTheClientIsKept(t *testing.T) {
	for _, c := range []struct{ give, want map[string]string }{
		{map[string]string{"X-B3-TraceId": "1", "X-B3-SpanId": "2"}, map[string]string{"X-B3-TraceId": "1", "X-B3-SpanId": "2"}},
		{map[string]string{"B3": "1-2"}, map[string]string{"X-B3-TraceId": "", "X-B3-SpanId": "", "B3": "1-2"}},
	} {
		w := newWorld(t, routeTo("shop", "", "a"))
		var got http.Header
		w.instance("a", 0, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
		req := w.request(http.MethodGet, "shop", "/", nil)
		for k, v := range c.give {
			req.Header.Set(k, v)
		}
		w.do(req)
		for k, v := range c.want {
			if got.Get(k) != v {
				t.Errorf("%v: %s = %q, want %q", c.give, k, got.Get(k), v)
			}
		}
	}
}

// A destination with a port uses only instances that were started with it; the default
// is the first port.
func TestDestinationPort(t *testing.T) {
	for _, c := range []struct {
		wished int
		ports  []int
		want   int
	}{
		{0, []int{8080}, 8080},
		{0, []int{9000, 8080}, 9000},
		{8082, []int{8080, 8082}, 8082},
		{8082, []int{8080}, 0},
	} {
		rt := routeTo("shop", "", "a")
		rt.Destinations[0].Port = c.wished
		w := newWorld(t, rt)
		st := ready("a", 0)
		st.Ports = c.ports
		w.router.Changed(st)
		got, ok := w.router.table.Load().match("shop.dew.localhost", "/").pick(nil)
		if ok != (c.want != 0) || got.port != c.want {
			t.Errorf("wished %d of %v: %d %v, want %d", c.wished, c.ports, got.port, ok, c.want)
		}
	}
}

func TestOddRequests(t *testing.T) {
	t.Parallel() // the server refuses a large header slowly
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.RequestURI) }))
	for _, c := range []struct {
		lines  []string
		status int
		name   string
	}{
		{[]string{"GET / HTTP/1.0"}, 400, "empty_host"},
		{[]string{"GET / HTTP/1.0", "Host: SHOP.dew.localhost."}, 200, ""},
		{[]string{"GET http://shop.dew.localhost/ HTTP/1.1", "Host: other"}, 400, "bad_request"},
		{[]string{"GET http://shop.dew.localhost/ HTTP/1.1", "Host: shop.dew.localhost"}, 400, "bad_request"},
		{[]string{"CONNECT shop.dew.localhost:80 HTTP/1.1", "Host: shop.dew.localhost:80"}, 405, "bad_request"},
		{[]string{"GET / HTTP/1.1", "Host: shop.dew.localhost", "Connection: Upgrade", "Upgrade: a\xffb"}, 400, "bad_request"},
		{[]string{"GET / HTTP/1.1", "Host: shop.dew.localhost", "X: " + strings.Repeat("x", 2*maxHeader)}, 431, ""},
	} {
		res, err := http.ReadResponse(bufio.NewReader(w.raw(c.lines...)), nil)
		if err != nil {
			t.Errorf("%.80q: %v", c.lines, err)
			continue
		}
		if res.StatusCode != c.status || res.Header.Get("X-Cf-RouterError") != c.name {
			t.Errorf("%.80q: %d %q, want %d %q", c.lines, res.StatusCode, res.Header.Get("X-Cf-RouterError"), c.status, c.name)
		}
	}
	// The app must answer OPTIONS *, not the router's server. Both respond with 200,
	// but only the router sets the request id.
	res, err := http.ReadResponse(bufio.NewReader(w.raw("OPTIONS * HTTP/1.1", "Host: shop.dew.localhost")), nil)
	if err != nil || res.Header.Get("X-Vcap-Request-Id") == "" {
		t.Errorf("OPTIONS *: %v, %v", res, err)
	}
}

func TestServerLimits(t *testing.T) {
	s := Server(http.NotFoundHandler())
	if s.ReadHeaderTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("a slow or large client is not limited: %+v", s)
	}
	if s.ReadTimeout != 0 || s.WriteTimeout != 0 {
		t.Errorf("a long poll would be cut: %v, %v", s.ReadTimeout, s.WriteTimeout)
	}
}

func TestNewNeedsItsParts(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]func(*Config){
		"Registry":  func(c *Config) { c.Registry = nil },
		"Instances": func(c *Config) { c.Instances = nil },
		"Dial":      func(c *Config) { c.Dial = nil },
		"Log":       func(c *Config) { c.Log = nil },
		"Logger":    func(c *Config) { c.Logger = nil },
	} {
		conf := w.config()
		c(&conf)
		if _, err := New(conf); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// The router's responses do not need a real server.
func TestWithoutServer(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, echo)
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	req.Host = "shop.dew.localhost"
	w.router.ServeHTTP(rec, req)
	if rec.Code != 200 || rec.Body.String() != "x" {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}
