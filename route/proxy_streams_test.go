package route

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/testkit"
)

var echo = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(rw, r.Body)
})

func TestWebSocketEcho(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
			http.Error(rw, "no upgrade", http.StatusBadRequest)
			return
		}
		c, brw, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(c, brw)
	}))
	w.run()
	c := w.raw("GET /chat HTTP/1.1", "Host: shop.dew.localhost", "Upgrade: websocket", "Connection: Upgrade")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	for i := range 100 {
		frame := fmt.Sprintf("frame %d;", i)
		if _, err := io.WriteString(c, frame); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(br, got); err != nil || string(got) != frame {
			t.Fatalf("got %q, %v, want %q", got, err, frame)
		}
	}
	// The instance is withdrawn: the connection stays open until one side closes it.
	w.router.Changed(crashed("a", 0))
	if _, err := io.WriteString(c, "still"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(br, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if line := <-w.lines; !strings.Contains(line, `"GET /chat HTTP/1.1" 101 `) {
		t.Errorf("line = %s", line)
	}
	testkit.EventuallyTrue(t, "connection to the instance is closed", func() bool { return w.openTo(idOf("a", 0)) == 0 })
}

// An app that switches to a protocol that was not requested leaves no connection open.
func TestWrongUpgrade(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n")
	}))
	req := w.request(http.MethodGet, "shop", "/", nil)
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Connection", "Upgrade")
	if res, _ := w.do(req); res.StatusCode != http.StatusBadGateway {
		t.Errorf("status = %d, want 502", res.StatusCode)
	}
	testkit.EventuallyTrue(t, "connection to the instance is closed", func() bool { return w.openTo(idOf("a", 0)) == 0 })
}

// Data is forwarded at once in both directions, while both continue.
func TestStreamsBothWays(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		for buf := make([]byte, 64); ; {
			n, err := r.Body.Read(buf)
			_, _ = rw.Write(buf[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	}))
	pr, pw := io.Pipe()
	res, err := w.front.Client().Do(w.request(http.MethodPost, "shop", "/", pr))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for i := range 50 {
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
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != 0 {
		t.Errorf("rest = %q, %v", rest, err)
	}
}

// A large response of known length is forwarded while the app writes it, starting with
// its header.
func TestLargeAnswerIsPassedOnAtOnce(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	goOn := make(chan bool)
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "1000000")
		_ = http.NewResponseController(rw).Flush()
		<-goOn
		_, _ = io.WriteString(rw, "begin")
		_ = http.NewResponseController(rw).Flush()
		<-goOn
		_, _ = rw.Write(make([]byte, 1_000_000-5))
	}))
	res, err := w.front.Client().Do(w.request(http.MethodGet, "shop", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	goOn <- true
	if got, err := io.ReadAll(io.LimitReader(res.Body, 5)); err != nil || string(got) != "begin" {
		t.Fatalf("%q, %v", got, err)
	}
	goOn <- true
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n != 1_000_000-5 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestTrailersBothWays(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "X-Back")
		_, _ = io.Copy(rw, r.Body)
		rw.Header().Set("X-Back", r.Trailer.Get("X-There"))
	}))
	c := w.raw("POST / HTTP/1.1", "Host: shop.dew.localhost", "Transfer-Encoding: chunked", "Trailer: X-There", "TE: trailers", "",
		"4", "body", "0", "X-There: sum")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil || string(b) != "body" || res.Trailer.Get("X-Back") != "sum" {
		t.Errorf("body %q, trailer %v, err %v", b, res.Trailer, err)
	}
}

// A client that waits for 100 Continue gets it when the app reads the body. Otherwise
// it gets only the response.
func TestContinue(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			rw.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = io.Copy(rw, r.Body)
	}))
	head := func(path string) (*bufio.Reader, io.Writer) {
		c := w.raw("POST "+path+" HTTP/1.1", "Host: shop.dew.localhost", "Content-Length: 4", "Expect: 100-continue")
		return bufio.NewReader(c), c
	}
	br, c := head("/yes")
	if line, err := br.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if line, err := br.ReadString('\n'); err != nil || line != "\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = io.WriteString(c, "body")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || string(b) != "body" {
		t.Errorf("%d %q %v", res.StatusCode, b, err)
	}
	br, _ = head("/no")
	if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Errorf("%q, %v, want 413 and no 100", line, err)
	}
}

// An app can respond without reading the body that the client has not sent yet.
func TestAnswerBeforeTheBody(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.WriteHeader(http.StatusUnauthorized)
	}))
	c := w.raw("POST / HTTP/1.1", "Host: shop.dew.localhost", "Content-Length: 1000")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%v, %v", res, err)
	}
}

// An app echoes a large body while it reads. The server does not consume any part of
// the body itself.
func TestLargeEcho(t *testing.T) {
	t.Parallel()
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		_, _ = io.Copy(rw, r.Body)
	}))
	sent := bytes.Repeat([]byte("0123456789"), 300_000)
	for range 3 {
		res, body := w.do(w.request(http.MethodPost, "shop", "/", bytes.NewReader(sent)))
		if res.StatusCode != 200 || body != string(sent) {
			t.Errorf("status %d, %d bytes, want %d", res.StatusCode, len(body), len(sent))
		}
	}
}

// An unread body does not affect the client's next request on the connection, and never
// causes a reset.
func TestUnreadBodyDoesNotSpoilTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, routeTo("answers", "", "a"), routeTo("empty", "", "b"), routeTo("refuses", "", "c"), routeTo("breaks", "", "d"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusConflict) }))
	w.refuses("c", 0)
	var seen sync.Map
	w.instance("d", 0, breaksOff(&seen))
	for host, status := range map[string]int{"unknown": 404, "answers": 409, "empty": 503, "refuses": 502, "breaks": 502} {
		for _, size := range []int{1, 5000, 100_000, 1_000_000} {
			for range 8 {
				res, err := w.front.Client().Do(w.request(http.MethodPost, host, "/", bytes.NewReader(make([]byte, size))))
				if err != nil {
					t.Errorf("%s, %d bytes: %v", host, size, err)
					continue
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != status {
					t.Errorf("%s, %d bytes: %d, %v, want %d", host, size, res.StatusCode, err, status)
				}
				res.Body.Close()
			}
		}
	}
}

// A malformed request body is not the instance's fault.
func TestBrokenRequestBody(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, echoLate)
	c := w.raw("POST / HTTP/1.1", "Host: shop.dew.localhost", "Transfer-Encoding: chunked", "", "zzz")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v, want 400", res, err)
	}
}

var echoLate = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = rw.Write(b)
})

// The client can detect an incomplete response of the app.
func TestAnswerBrokenOff(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "half of")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}))
	w.run()
	res, err := w.front.Client().Do(w.request(http.MethodGet, "shop", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("read %q without an error", b)
	}
	if line := <-w.lines; !strings.Contains(line, `"GET / HTTP/1.1" 200 0 7 `) {
		t.Errorf("line = %s", line)
	}
}

// A client that disconnects is not counted as an instance failure, and its request is
// not repeated.
func TestClientThatDoesNotWait(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.run()
	entered := make(chan context.CancelFunc, 1)
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		(<-entered)()
		<-r.Context().Done() // the router has disconnected
	})
	w.instance("a", 0, slow)
	w.instance("a", 1, slow)
	ctx, cancel := context.WithCancel(context.Background())
	entered <- cancel
	res, err := w.front.Client().Do(w.request(http.MethodGet, "shop", "/", nil).WithContext(ctx))
	if err == nil {
		res.Body.Close()
		t.Fatalf("status = %d", res.StatusCode)
	}
	if line := <-w.lines; !strings.Contains(line, `"GET / HTTP/1.1" 499 `) || !strings.Contains(line, `x_cf_routererror:"-"`) {
		t.Errorf("line = %s", line)
	}
	if got := w.router.Stats(); got.Failed != 0 || got.Retries != 0 {
		t.Errorf("stats = %+v", got)
	}
}
