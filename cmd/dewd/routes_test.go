//go:build integration

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const debugSidecars = `  sidecars:
  - {name: debug, process_types: [web], command: ./routeapp side 0.0.0.0:9090, memory: 24MB}
  - {name: hidden, process_types: [web], command: "./routeapp side 127.0.0.1:9091", memory: 24MB}
`

// A route gets a sidecar's port as its destination. It is pending until the restart,
// even if dewd is restarted in between. A sidecar that listens only on the loopback
// stays unreachable, and the app's log says why.
func TestRouteToSidecar(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", debugSidecars)
	w.awaitResponse("shop", "/", "web 0")
	clients := map[string]func(method, path, body string) string{
		"dew curl": func(method, path, body string) string { return w.dewOutput("curl", "-X", method, path, "-d", body) },
	}
	if bin := os.Getenv("CF_BIN"); bin != "" {
		clients["cf curl"] = w.stockCurl(bin)
	}
	path := "/v3/routes/" + w.routeGUID("shop") + "/destinations"
	body := func(port int) string {
		return fmt.Sprintf(`{"destinations":[{"app":{"guid":%q,"process":{"type":"web"}},"port":%d,"protocol":"http1"}]}`, w.appGUID("shop"), port)
	}
	for name, curl := range clients {
		answer := curl("PATCH", path, body(9090))
		if !isPending(t, answer) {
			t.Fatalf("%s: not pending: %s", name, answer)
		}
		if out := w.dewOutput("routes"); !strings.Contains(out, "9090") || !strings.Contains(out, "pending until dew restart shop") {
			t.Errorf("dew routes:\n%s", out)
		}
		w.awaitResponse("shop", "/", "web 0")
		w.kill(syscall.SIGKILL)
		w.startDewd()
		w.awaitResponse("shop", "/", "web 0")
		if !isPending(t, curl("GET", path, "")) {
			t.Errorf("%s: no longer pending after a restart of dewd", name)
		}
		w.dew("restart", "shop")
		w.awaitResponse("shop", "/threaddump", "side")
		if isPending(t, curl("GET", path, "")) || strings.Contains(w.dewOutput("routes"), "pending") {
			t.Errorf("%s: pending after the restart", name)
		}
		curl("PATCH", path, fmt.Sprintf(`{"destinations":[{"app":{"guid":%q}}]}`, w.appGUID("shop")))
		w.awaitResponse("shop", "/", "web 0") // the default port works at once
		w.dew("restart", "shop")              // without the other port
		w.awaitResponse("shop", "/", "web 0")
	}
	w.dewOutput("curl", "-X", "PATCH", path, "-d", body(9091))
	w.awaitResponse("shop", "/", "web 0")
	w.dew("restart", "shop")
	w.eventually("the hidden sidecar is not reached", func() error {
		if status, text := w.get("shop", "/"); status != http.StatusBadGateway || text != "502 Bad Gateway: Registered endpoint failed to handle the request.\n" {
			return fmt.Errorf("%d %q", status, text)
		}
		return nil
	})
	const why = "[RTR/0] ERR cannot connect to instance 0 of process web on port 9091: the app listens only on 127.0.0.1:9091; it must listen on 0.0.0.0"
	w.eventually("the log says why", func() error {
		w.get("shop", "/") // the sidecar may not have listened yet
		if out := w.dewOutput("logs", "shop", "--recent"); !strings.Contains(out, why) {
			return fmt.Errorf("log:\n%s", out)
		}
		return nil
	})
}

func isPending(t *testing.T, answer string) bool {
	t.Helper()
	var ds struct {
		Destinations []struct {
			Port    int
			Pending bool
		}
	}
	if err := json.Unmarshal([]byte(answer), &ds); err != nil || len(ds.Destinations) != 1 {
		t.Fatalf("%v: %s", err, answer)
	}
	return ds.Destinations[0].Pending
}

// stockCF returns a function that runs the cf CLI with a home of its own.
func (w *routeTest) stockCF(bin string) func(args ...string) string {
	home := w.t.TempDir()
	return func(args ...string) string {
		w.t.Helper()
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), "CF_HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			w.t.Fatalf("cf %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
}

// stockCurl sends requests with the cf CLI. The daemon has another address after each
// start.
func (w *routeTest) stockCurl(bin string) func(method, path, body string) string {
	cf := w.stockCF(bin)
	return func(method, path, body string) string {
		w.t.Helper()
		password, err := os.ReadFile(filepath.Join(w.root, "admin-password"))
		if err != nil {
			w.t.Fatal(err)
		}
		cf("api", w.status.API)
		cf("auth", "admin", strings.TrimSpace(string(password)))
		args := []string{"curl", "-X", method, path}
		if body != "" {
			args = append(args, "-d", body)
		}
		return cf(args...)
	}
}

func TestRouterWithRealClients(t *testing.T) {
	runParallel(t)
	secure := freeAddress(t)
	w := newRouteTest(t, "--router-tls", secure)
	w.push("shop", "")
	w.dew("map-route", "shop", "dew.localhost", "--hostname", "two", "--app-protocol", "http2")
	w.awaitResponse("shop", "/", "web 0")
	closed := w.refusesSlowHeaders(t) // they take as long as a header can take, and everything else runs in parallel
	t.Run("curl", w.curls)
	t.Run("TLS", func(t *testing.T) { w.servesTLS(t, secure) })
	t.Run("large bodies", w.carriesLargeBodies)
	t.Run("web socket", w.upgrades)
	t.Run("idle connections", w.servesIdleConns)
	t.Run("hostile clients", w.refuses)
	t.Run("inside", w.inside)
	t.Run("load", w.keepsServing)
	t.Run("slow clients", closed)
}

func (w *routeTest) curl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("curl", append([]string{"-sS", "--max-time", "600"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("curl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (w *routeTest) curls(t *testing.T) {
	url := func(host, path string) []string {
		return []string{"--resolve", host + ".dew.localhost:" + w.port() + ":127.0.0.1", "http://" + host + ".dew.localhost:" + w.port() + path}
	}
	for _, c := range []struct{ flag, host, want string }{
		{"--http1.1", "shop", "web 0 HTTP/1.1"},
		{"--http2-prior-knowledge", "shop", "web 0 HTTP/1.1"},
		{"--http2", "shop", "web 0 HTTP/1.1"},
		{"--http1.0", "SHOP", "web 0 HTTP/1.1"},
		{"--http1.1", "two", "web 0 HTTP/2.0"},
		{"--http2-prior-knowledge", "two", "web 0 HTTP/2.0"},
	} {
		if got := w.curl(t, append(url(c.host, "/"), c.flag)...); got != c.want {
			t.Errorf("curl %s %s: %q, want %q", c.flag, c.host, got, c.want)
		}
	}
	for _, flag := range []string{"--http1.1", "--http2-prior-knowledge"} {
		got := w.curl(t, append(url("shop", "/echo"), flag, "-H", "Expect: 100-continue", "-d", "order")...)
		if got != "order" {
			t.Errorf("%s with 100-continue: %q", flag, got)
		}
	}
	if got := w.curl(t, append(url("nobody", "/"), "-i")...); !strings.HasPrefix(got, "HTTP/1.1 404") ||
		!strings.Contains(got, "X-Cf-Routererror: unknown_route") || !strings.HasSuffix(got, "404 Not Found: Requested route does not exist.\n") {
		t.Errorf("unknown route: %q", got)
	}
}

// servesTLS sends requests over TLS with a certificate of the daemon's own CA.
func (w *routeTest) servesTLS(t *testing.T, address string) {
	_, port, _ := strings.Cut(address, ":")
	for flag, want := range map[string]string{"--http1.1": "web 0 HTTP/1.1 1.1", "--http2": "web 0 HTTP/1.1 2"} {
		got := w.curl(t, flag, "--cacert", filepath.Join(w.root, "keys", "router-ca.pem"), "-w", " %{http_version}",
			"--resolve", "shop.dew.localhost:"+port+":127.0.0.1", "https://shop.dew.localhost:"+port+"/")
		if got != want {
			t.Errorf("curl %s: %q, want %q", flag, got, want)
		}
	}
}

func (w *routeTest) port() string { return w.front[strings.LastIndexByte(w.front, ':')+1:] }

// carriesLargeBodies uploads and downloads a large body, over both protocols.
func (w *routeTest) carriesLargeBodies(t *testing.T) {
	size := int64(rounds(16<<20, 1<<30))
	for _, flag := range []string{"--http1.1", "--http2-prior-knowledge"} {
		for _, host := range []string{"shop", "two"} {
			at := "http://" + w.front
			name := "Host: " + host + ".dew.localhost"
			cmd := exec.Command("curl", "-sS", flag, "-H", name, "-T", "-", at+"/sink")
			cmd.Stdin = io.LimitReader(zero{}, size)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != strconv.FormatInt(size, 10) {
				t.Errorf("%s up to %s: %s, %v", flag, host, out, err)
			}
			got := w.curl(t, flag, "-H", name, "-o", "/dev/null", "-w", "%{http_code} %{size_download}", fmt.Sprintf("%s/zeros?n=%d", at, size))
			if want := fmt.Sprintf("200 %d", size); got != want {
				t.Errorf("%s down from %s: %s, want %s", flag, host, got, want)
			}
		}
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (w *routeTest) upgrades(t *testing.T) {
	for _, host := range []string{"shop", "two"} {
		c, r := w.rawConn("GET /ws HTTP/1.1\r\nHost: " + host + ".dew.localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
			t.Fatalf("%v, %v", res, err)
		}
		for i := range 100 {
			text := fmt.Sprintf("message %d", i)
			if _, err := c.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 2+len(text))
			if _, err := io.ReadFull(r, got); err != nil || string(got[2:]) != text {
				t.Fatalf("%q, %v, want %q", got, err, text)
			}
		}
		c.Close()
	}
}

// servesIdleConns opens many idle connections. They and others are served.
func (w *routeTest) servesIdleConns(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\n\r\n"
	type conn struct {
		io.ReadWriteCloser
		r *bufio.Reader
	}
	answer := func(c conn) {
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "web 0 HTTP/1.1" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	var all []conn
	for range rounds(300, 1000) {
		c, r := w.rawConn(request)
		all = append(all, conn{c, r})
		answer(all[len(all)-1])
	}
	for range 100 {
		if status, body := w.get("shop", "/"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	for _, c := range all {
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		answer(c)
		c.Close()
	}
}

// refuses sends malicious requests. Other clients are not affected.
func (w *routeTest) refuses(t *testing.T) {
	const host = "Host: shop.dew.localhost\r\n"
	for name, c := range map[string]struct {
		text   string
		status int // 0: no response
	}{
		"two lengths":          {"POST /echo HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
		"signed length":        {"POST /echo HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc", 400},
		"negative length":      {"POST /echo HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
		"unknown encoding":     {"POST /echo HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		"two encodings":        {"POST /echo HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501},
		"bad chunk size":       {"POST /echo HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n", 400},
		"huge chunk size":      {"POST /echo HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
		"space before a colon": {"GET / HTTP/1.1\r\n" + host + "Content-Length : 3\r\n\r\n", 400},
		"folded header":        {"GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\nNo colon\r\n\r\n", 400},
		"a fold alone":         {"GET / HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", 400},
		"bare line feeds":      {"GET / HTTP/1.1\nHost: shop.dew.localhost\n\n", 400},
		"a proxy's target":     {"GET http://shop.dew.localhost/ HTTP/1.1\r\n" + host + "\r\n", 400},
		"two hosts":            {"GET / HTTP/1.1\r\n" + host + "Host: other\r\n\r\n", 400},
		"no host":              {"GET / HTTP/1.1\r\n\r\n", 400},
		"no version":           {"GET /\r\n\r\n", 400},
		"a proxy's method":     {"CONNECT shop.dew.localhost:80 HTTP/1.1\r\n" + host + "\r\n", 405},
		"huge header":          {"GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431},
		"noise":                {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},
	} {
		conn, r := w.rawConn(c.text)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Errorf("%s: %v, want %d", name, err, c.status)
		} else if res.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, c.status)
		}
		conn.Close()
	}
	w.refusesSmuggling(t)
}

// refusesSmuggling hides a request in the body of another. A proxy that reads lengths
// differently from the app would treat it as a request. Ambiguous requests are refused,
// and nothing after them is read.
func (w *routeTest) refusesSmuggling(t *testing.T) {
	conn, r := w.rawConn("POST /echo HTTP/1.1\r\nHost: shop.dew.localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
		"GET /smuggled HTTP/1.1\r\nHost: shop.dew.localhost\r\nConnection: close\r\n\r\n")
	defer conn.Close()
	first, err := http.ReadResponse(r, nil)
	if err != nil || first.StatusCode != http.StatusBadRequest {
		t.Fatalf("%v, %v, want 400", first, err)
	}
	if _, err := io.Copy(io.Discard, first.Body); err != nil {
		t.Fatal(err)
	}
	if second, err := http.ReadResponse(r, nil); err == nil {
		t.Errorf("what was hidden got %d", second.StatusCode)
	}
}

// refusesSlowHeaders opens many connections that never finish their header. Others are served at
// once, and the slow ones are closed. The returned function waits for that.
func (w *routeTest) refusesSlowHeaders(t *testing.T) (closed func(t *testing.T)) {
	t.Helper()
	var slow []io.ReadCloser
	for range 300 {
		c, _ := w.rawConn("GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\nX-Slow: ")
		t.Cleanup(func() { c.Close() })
		slow = append(slow, c)
	}
	for range 50 {
		if status, body := w.get("shop", "/"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	return func(t *testing.T) {
		for _, c := range slow {
			b, err := io.ReadAll(c) // returns when the connection is closed
			if err != nil && !strings.Contains(err.Error(), "reset") || bytes.Contains(b, []byte("200 OK")) {
				t.Fatalf("%q, %v", b, err)
			}
		}
	}
}

// inside connects from a container to other apps and to the platform.
func (w *routeTest) inside(t *testing.T) {
	w.dew("map-route", "shop", "apps.internal", "--hostname", "hidden")
	_, port, _ := strings.Cut(strings.TrimPrefix(w.status.API, "http://"), ":")
	w.awaitResponse("shop", "/fetch?url=http://hidden.apps.internal:8080/", "web 0")
	w.awaitResponse("shop", "/fetch?url=http://0.hidden.apps.internal:8080/", "web 0")
	if status, body := w.get("shop", "/fetch?url=http://api.dew.internal:"+port+"/"); status != 200 || !strings.Contains(body, "links") {
		t.Errorf("the API from inside: %d %q", status, body)
	}
	for _, name := range []string{"none.apps.internal", "9.hidden.apps.internal", "none.dew.internal"} {
		if status, body := w.get("shop", "/fetch?url=http://"+name+":8080/"); status != 502 || !strings.Contains(body, "no such host") {
			t.Errorf("%s: %d %q", name, status, body)
		}
	}
	if status, _ := w.get("hidden.apps.internal", "/"); status != http.StatusNotFound {
		t.Errorf("an internal route can be reached from outside: %d", status)
	}
}

// keepsServing sends requests all the time while instances start, stop and crash. No request
// fails.
func (w *routeTest) keepsServing(t *testing.T) {
	w.dew("scale", "shop", "-i", "3")
	w.eventually("three instances answer", func() error {
		seen := map[string]bool{}
		for range 12 {
			_, body := w.get("shop", "/")
			seen[body] = true
		}
		if len(seen) != 3 {
			return fmt.Errorf("%v", seen)
		}
		return nil
	})
	var asked atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, body, err := w.fetch("shop", "/")
				if err != nil || res.StatusCode != 200 || !strings.HasPrefix(body, "web ") {
					t.Errorf("%v %q %v", res, body, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	guid := w.appGUID("shop")
	for i := range 3 {
		res, _, err := w.fetch("shop", "/exit", "X-CF-App-Instance", guid+":"+strconv.Itoa(i))
		if err != nil || res.StatusCode != http.StatusBadGateway {
			t.Errorf("crash of instance %d: %v, %v", i, res, err)
		}
		w.eventually("the instance is back", func() error {
			res, body, err := w.fetch("shop", "/", "X-CF-App-Instance", guid+":"+strconv.Itoa(i))
			if err != nil || res.StatusCode != 200 {
				return fmt.Errorf("%v %q %w", res, body, err)
			}
			return nil
		})
	}
	for _, n := range []int{5, 2, 4, 1} {
		w.dew("scale", "shop", "-i", strconv.Itoa(n))
		w.eventually(fmt.Sprintf("%d instances are there", n), func() error {
			if got := len(w.leaves()); got != n {
				return fmt.Errorf("%d are", got)
			}
			return nil
		})
	}
	close(stop)
	wg.Wait()
	if asked.Load() < 100 {
		t.Errorf("only %d requests were made", asked.Load())
	}
}

func TestRoutesOfApps(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("one", "  no-route: true\n")
	w.push("two", "  no-route: true\n  env: {X: y}\n")
	one := func(args ...string) { w.dew(append([]string{"map-route", "one", "dew.localhost"}, args...)...) }
	two := func(args ...string) { w.dew(append([]string{"map-route", "two", "dew.localhost"}, args...)...) }
	app := func(host, path string) string {
		res, body, err := w.fetch(host, path)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 200 {
			return res.Header.Get("X-Cf-Routererror")
		}
		return body
	}
	one("--hostname", "shop")
	two("--hostname", "shop", "--path", "/api")
	one("--hostname", "*")
	two("--hostname", "exact")
	one("--hostname", "both")
	two("--hostname", "both")
	// The apps answer the same, so the test checks the access log lines.
	for _, c := range []struct{ host, path, want string }{
		{"shop", "/", "one"},
		{"SHOP", "/apix", "one"},
		{"shop", "/api", "two"},
		{"Shop", "/api/x", "two"},
		{"any", "/any", "one"},
		{"a.b", "/any", "one"},
		{"exact", "/exact", "two"},
	} {
		mark := fmt.Sprintf("%s?%d", c.path, time.Now().UnixNano())
		w.eventually("route "+c.host+c.path, func() error {
			if got := app(c.host, mark); !strings.HasPrefix(got, "web 0") {
				return fmt.Errorf("%q", got)
			}
			if out := w.dewOutput("logs", c.want, "--recent"); !strings.Contains(out, mark) {
				return fmt.Errorf("%s was not asked", c.want)
			}
			return nil
		})
	}
	for _, name := range []string{"one", "two"} { // from here on they alternate
		w.eventually("the route of both leads to "+name, func() error {
			app("both", "/first")
			if !strings.Contains(w.dewOutput("logs", name, "--recent"), "GET /first") {
				return fmt.Errorf("%s was not asked", name)
			}
			return nil
		})
	}
	for i := range 8 {
		app("both", fmt.Sprintf("/both-%d", i))
	}
	for _, name := range []string{"one", "two"} {
		w.eventually("both apps are asked", func() error {
			if n := strings.Count(w.dewOutput("logs", name, "--recent"), "GET /both-"); n != 4 {
				return fmt.Errorf("%s was asked %d times of 8", name, n)
			}
			return nil
		})
	}
	// Running requests finish; later ones find no route.
	conn, r := w.rawConn("GET /slow?for=3s HTTP/1.1\r\nHost: exact.dew.localhost\r\n\r\n")
	defer conn.Close()
	slow, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.dew("unmap-route", "two", "dew.localhost", "--hostname", "exact")
	w.eventually("the route leads to the wildcard's app", func() error {
		if got := app("exact", "/after"); !strings.HasPrefix(got, "web 0") {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if got, err := io.ReadAll(slow.Body); err != nil || string(got) != "begun done" {
		t.Errorf("the request that ran got %q, %v", got, err)
	}
	w.dew("stop", "two")
	w.eventually("no instance", func() error {
		if got := app("shop", "/api"); got != "no_endpoints" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})

	// Another daemon on the same machine has the same names, its own apps, and its own
	// bridge.
	other := newRouteTest(t)
	other.push("three", "  routes: [{route: shop.dew.localhost}]\n")
	other.awaitResponse("shop", "/", "web 0")
	other.dew("map-route", "three", "apps.internal", "--hostname", "mine")
	other.awaitResponse("shop", "/fetch?url=http://mine.apps.internal:8080/", "web 0")
	if status, body := w.get("shop", "/fetch?url=http://mine.apps.internal:8080/"); status != 502 {
		t.Errorf("one daemon knows the names of another: %d %q", status, body)
	}
	other.tearDown()
	w.awaitResponse("shop", "/", "web 0")
}
