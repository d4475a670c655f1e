package route

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// scripted starts an instance that handles each connection with speak.
func (w *world) scripted(guid string, index int, speak func(c net.Conn, r *bufio.Reader, nth int32)) {
	w.t.Helper()
	l := testkit.Listen(w.t)
	var count atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				speak(c, bufio.NewReader(c), count.Add(1))
			}()
		}
	}()
	w.mu.Lock()
	w.hosts[idOf(guid, index)] = l.Addr().String()
	w.mu.Unlock()
	w.router.Changed(ready(guid, index))
}

// answers reads one request after the other and responds to each with text.
func answers(text string) func(net.Conn, *bufio.Reader, int32) {
	return func(c net.Conn, r *bufio.Reader, _ int32) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

// For any response of an instance, the client gets the right one. A connection with
// leftover data is not reused.
func TestAnswersOfAllKinds(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		text   string
		status int
		body   string
		dials  int // for three requests
	}{
		"length":        {ok + "Content-Length: 2\r\n\r\nhi", 200, "hi", 1},
		"empty":         {ok + "Content-Length: 0\r\n\r\n", 200, "", 1},
		"no content":    {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", 1},
		"chunks":        {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, "hi", 1},
		"early hints":   {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi", 200, "hi", 1},
		"asks to close": {ok + "Connection: close\r\nContent-Length: 2\r\n\r\nhi", 200, "hi", 3},
		"too much":      {ok + "Content-Length: 2\r\n\r\nhi" + ok + "Content-Length: 4\r\n\r\nevil", 200, "hi", 3},
		"no HTTP":       {"SSH-2.0-x\r\n\r\n", 502, endpointFailure.text, 3},
		"a switch":      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", 502, endpointFailure.text, 3},
		"only hints":    {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20), 502, endpointFailure.text, 3},
		"huge header":   {ok + "X: " + strings.Repeat("x", 2*maxAnswerHeader) + "\r\n\r\n", 502, endpointFailure.text, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, routeTo("shop", "", "a"))
			w.scripted("a", 0, answers(c.text))
			for range 3 {
				res, body := w.get("shop", "/")
				if res.StatusCode != c.status || body != c.body {
					t.Errorf("%d %q, want %d %q", res.StatusCode, body, c.status, c.body)
				}
			}
			if n := w.dialsTo(idOf("a", 0)); n != c.dials {
				t.Errorf("%d connections, want %d", n, c.dials)
			}
		})
	}
}

// An instance can close a connection after each response without losing a request. If
// it closes the connection during a response, the request fails and is not repeated.
func TestConnectionThatEnds(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"), routeTo("half", "", "b"))
	w.scripted("a", 0, func(c net.Conn, r *bufio.Reader, _ int32) {
		if _, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	})
	for i := range 10 {
		if res, body := w.get("shop", "/"); res.StatusCode != 200 || body != "hi" {
			t.Fatalf("request %d: %d %q", i, res.StatusCode, body)
		}
	}
	var asked atomic.Int32
	w.scripted("b", 0, func(c net.Conn, r *bufio.Reader, _ int32) {
		if _, err := http.ReadRequest(r); err == nil {
			asked.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-")
		}
	})
	if res, _ := w.get("half", "/"); res.StatusCode != 502 || asked.Load() != 1 {
		t.Errorf("%d after %d attempts", res.StatusCode, asked.Load())
	}
}

// Idle connections are closed after a while.
func TestIdleConnectionsAreClosed(t *testing.T) {
	kept := newWorld(t, routeTo("shop", "", "a"))
	kept.instance("a", 0, says("hi"))
	for range 3 {
		kept.get("shop", "/")
	}
	if n := kept.openTo(idOf("a", 0)); n != 1 {
		t.Errorf("%d connections are open after use, want 1", n)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} { // over a pooled connection, and over a transport
		w := newWorld(t, routeTo("shop", "", "a"))
		w.router.idle = 50 * time.Millisecond
		w.instance("a", 0, says("hi"))
		w.do(w.request(method, "shop", "/", nil))
		testkit.EventuallyTrue(t, "the idle connection is closed", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
}

// When a client disconnects, its request to the instance is cancelled.
func TestDisconnectedClientClosesItsConnection(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	asked, gone := make(chan struct{}), make(chan struct{})
	w.scripted("a", 0, func(_ net.Conn, r *bufio.Reader, _ int32) {
		if _, err := http.ReadRequest(r); err != nil {
			t.Error("the request has not come:", err)
		}
		close(asked)
		_, _ = r.ReadByte() // fails when the connection is closed
		close(gone)
	})
	c := w.raw("GET / HTTP/1.1", "Host: shop.dew.localhost")
	testkit.Closed(t, "the instance is asked", asked)
	c.Close()
	testkit.Closed(t, "the connection to the instance ends", gone)
}

// A client that disconnects before its request was sent leaves no connection open.
func TestClientThatDisconnectsEarlyClosesItsConnection(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.scripted("a", 0, func(_ net.Conn, r *bufio.Reader, _ int32) {
		_, _ = io.Copy(io.Discard, r) // until the connection is closed
	})
	for range 20 {
		dials := w.dialsTo(idOf("a", 0))
		c := w.raw("GET / HTTP/1.1", "Host: shop.dew.localhost")
		testkit.EventuallyTrue(t, "the instance is called", func() bool { return w.dialsTo(idOf("a", 0)) > dials })
		c.Close()
		testkit.EventuallyTrue(t, "no connection is left", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
}

func TestBare(t *testing.T) {
	for _, c := range []struct {
		method, header string
		body           io.Reader
		want           bool
	}{
		{http.MethodGet, "", nil, true},
		{http.MethodHead, "", nil, true},
		{http.MethodOptions, "", nil, true},
		{http.MethodPost, "", nil, false},
		{http.MethodDelete, "", nil, false},
		{http.MethodGet, "", strings.NewReader("x"), false},
		{http.MethodGet, "websocket", nil, false},
	} {
		req, err := http.NewRequest(c.method, "http://a/", c.body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Upgrade", c.header)
		if got := canPool(req); got != c.want {
			t.Errorf("%s: %v, want %v", fmt.Sprint(c), got, c.want)
		}
	}
}

// idleTo returns the idle connection to the instance of a route.
func (w *world) idleTo(host string) *pooledConn {
	tg, _ := w.router.table.Load().match(host+".dew.localhost", "/").pick(nil)
	p := tg.endpoint.connPool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.idle {
		if len(l) > 0 {
			return l[len(l)-1]
		}
	}
	return nil
}

// Data that an instance sends without a request is not the response to any request. An
// app that sends too much, or announces a timeout on an idle connection, must not
// affect other clients.
func TestUnexpectedResponseIsDiscarded(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	const stale = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\n\r\nstale"
	send := make(chan bool)
	w.tcpInstance("a", 0, func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine")
			<-send
			_, _ = io.WriteString(c, stale)
		}
	})
	for i := range 5 {
		if res, body := w.get("shop", "/"); res.StatusCode != 200 || body != "mine" {
			t.Errorf("request %d: %d %q", i, res.StatusCode, body)
		}
		var idle *pooledConn
		testkit.EventuallyTrue(t, "the router has taken the answer for whole", func() bool { idle = w.idleTo("shop"); return idle != nil })
		send <- true
		testkit.EventuallyTrue(t, "the stale answer arrives", func() bool { return !idle.silent() })
	}
	if n := w.dialsTo(idOf("a", 0)); n != 5 {
		t.Errorf("dials = %d, want one for each request", n)
	}
}
