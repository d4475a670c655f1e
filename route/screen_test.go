package route

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/testkit"
)

// pieces is a connection that returns a text in pieces.
type pieces struct {
	net.Conn
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// requests parses all requests as a server does. It returns the method, target and body
// of each, and the last error.
func requests(r io.Reader) (out []string, err error) {
	br := bufio.NewReader(r)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return out, err
		}
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%s %s %q", req.Method, req.RequestURI, b))
	}
}

// Unambiguous requests pass unchanged, however they are split.
func TestScreenLetsThrough(t *testing.T) {
	text := "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" +
		"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nGET /" +
		"POST /3 HTTP/1.1\r\nHost: a\r\ntransfer-encoding:  chunked \r\n\r\n5;name=\"v\"\r\nGET /\r\nA\r\n0123\r\n\n\r\n9\r\n000\r\nX: y\r\n\r\n" +
		"HEAD /4 HTTP/1.0\r\nContent-Length: 0\r\n\r\n"
	want := []string{`GET /1 ""`, `POST /2 "GET /"`, `POST /3 "GET /0123\r\n\n\r\n9"`, `HEAD /4 ""`}
	for _, size := range []int{1, 2, 3, 7, 64, 4096} {
		got, err := requests(&screen{Conn: &pieces{text: text, size: size}})
		if !slices.Equal(got, want) || !errors.Is(err, io.EOF) {
			t.Errorf("in pieces of %d: %q, %v", size, got, err)
		}
	}
	for _, rest := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\x00", "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n\n\x00"} {
		if b, err := io.ReadAll(&screen{Conn: &pieces{text: rest, size: 5}}); err != nil || string(b) != rest {
			t.Errorf("%q became %q, %v", rest, b, err)
		}
	}
}

// unclear are ambiguous requests.
var unclear = map[string]string{
	"two ways to end":         "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"the other way round":     "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
	"chunks before their age": "POST / HTTP/1.0\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"two lengths":             "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
	"a list of lengths":       "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nContent-Length: 3, 3\r\n\r\nabc",
	"a signed length":         "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nContent-Length: +3\r\n\r\nabc",
	"a folded line":           "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\nX: a\r\n b: c\r\n\r\n",
	"a folded encoding":       "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
	"a space before a colon":  "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nContent-Length : 3\r\n\r\nabc",
	"a line feed alone":       "GET / HTTP/1.1\nHost: shop.dew.localhost\r\n\r\n",
	"a line feed in a header": "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\nX: a\nY: b\r\n\r\n",
	"a line feed at the end":  "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\n\n",
	"a carriage return alone": "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\nX: a\rY: b\r\n\r\n",
	"a zero byte":             "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\nX: a\x00b\r\n\r\n",
	"no name":                 "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\n: x\r\n\r\n",
	"no colon":                "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\nX\r\n\r\n",
	"a tab for a space":       "GET\t/ HTTP/1.1\r\nHost: shop.dew.localhost\r\n\r\n",
	"no number of bytes":      "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
	"a number with a sign":    "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
	"a number with a prefix":  "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
	"too large a number":      "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nabc\r\n",
	"a chunk that goes on":    "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
	"a line feed in chunks":   "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
	"a line feed behind one":  "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
	"a folded trailer":        "POST / HTTP/1.1\r\nHost: shop.dew.localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\r\n b\r\n\r\n",
}

// Ambiguous requests are refused, however they are split, and nothing after them is
// read.
func TestScreenRefuses(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: shop.dew.localhost\r\n\r\n"
	for name, text := range unclear {
		for size := 1; size <= len(text); size++ {
			got, err := requests(&screen{Conn: &pieces{text: text + hidden, size: size}})
			if err == nil || errors.Is(err, io.EOF) || len(got) > 0 {
				t.Errorf("%s, in pieces of %d: %q, %v", name, size, got, err)
				break
			}
		}
	}
}

// The clients get 400 and the connection is closed. The app does not receive the hidden
// request, and other clients are not affected.
func TestUnclearRequests(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hidden" {
			t.Error("the app got the hidden request")
		}
		if _, err := io.Copy(rw, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	for name, text := range unclear {
		c, err := net.Dial("tcp", w.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		// A valid request before it gets its normal response.
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.dew.localhost\r\n\r\n"+text+"GET /hidden HTTP/1.1\r\nHost: shop.dew.localhost\r\n\r\n")
		br := bufio.NewReader(c)
		for _, want := range []int{200, 400} {
			res, err := http.ReadResponse(br, nil)
			if err != nil || res.StatusCode != want {
				t.Errorf("%s: %v, %v, want %d", name, res, err, want)
				break
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
	}
	if res, _ := w.get("shop", "/"); res.StatusCode != 200 {
		t.Errorf("others get %d", res.StatusCode)
	}
}

// A request with an upgrade is the last on its connection unless the upgrade is
// granted: data after it is not checked.
func TestUpgradeHidesNothing(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hidden" {
			t.Error("the app got the hidden request")
		}
	}))
	for _, host := range []string{"shop", "nobody"} {
		c := w.raw("GET / HTTP/1.1", "Host: "+host+".dew.localhost", "Upgrade: websocket", "Connection: Upgrade", "",
			"POST /hidden HTTP/1.1", "Host: shop.dew.localhost", "Content-Length: 5", "Transfer-Encoding: chunked", "", "0")
		br := bufio.NewReader(c)
		res, err := http.ReadResponse(br, nil)
		if err != nil || !res.Close {
			t.Errorf("%s: %v, %v, want the last answer", host, res, err)
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res, err := http.ReadResponse(br, nil); err == nil {
			t.Errorf("%s: the hidden request got %d", host, res.StatusCode)
		}
	}
}

// The screen also works after TLS, and apps see that the request came over TLS.
func TestScreenBehindTLS(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("X-Forwarded-Proto"))
	}))
	a := openAuthority(t, w)
	for want, tune := range map[int]func(*http.Transport){2: func(*http.Transport) {}, 1: func(tr *http.Transport) { tr.ForceAttemptHTTP2 = false }} {
		client := w.secure(a)
		tr := client.Transport.(*http.Transport)
		tune(tr)
		res, err := client.Get("https://shop.dew.localhost/")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(b) != "https" || res.ProtoMajor != want {
			t.Errorf("%q over %s, %v, want HTTP/%d", b, res.Proto, err, want)
		}
		if want == 2 {
			continue
		}
		plain, err := tr.DialContext(t.Context(), "tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		tr.TLSClientConfig.ServerName = "shop.dew.localhost"
		c := tls.Client(plain, tr.TLSClientConfig)
		_, _ = io.WriteString(c, unclear["two ways to end"])
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 400 {
			t.Errorf("%v, %v, want 400", res, err)
		}
	}
}

// stuck is a connection whose client reads nothing. It records the deadlines.
type stuck struct {
	net.Conn
	deadline time.Time
	sets     int
}

func (s *stuck) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	s.sets++
	return nil
}

func (s *stuck) Write(p []byte) (int, error) { return len(p), nil }

// A client has two minutes to read something after each write; a long stream is not
// interrupted.
func TestSlowReaderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &stuck{}
		s := &screen{Conn: c}
		for range 100 {
			if _, err := s.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(c.deadline); left < writePatience/2 || left > writePatience {
				t.Fatalf("the client has %v", left)
			}
			time.Sleep(7 * time.Second)
		}
		if c.sets > 20 {
			t.Errorf("the deadline was moved %d times", c.sets)
		}
		time.Sleep(time.Hour)
		if _, err := s.Write([]byte("x")); err != nil || time.Until(c.deadline) != writePatience {
			t.Errorf("after a pause the client has %v, %v", time.Until(c.deadline), err)
		}
	})
}

// For any input, a server after the screen sees exactly the requests that the screen
// sees: no end of a request is ambiguous.
func FuzzScreen(f *testing.F) {
	for _, text := range unclear {
		f.Add([]byte(text+"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 5)
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 9)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		s := &screen{Conn: &pieces{text: string(text), size: max(1, size)}}
		in := &counted{r: s}
		br := bufio.NewReaderSize(in, 16)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				break
			}
			if req.ProtoMajor != 1 || req.Header.Get("Upgrade") != "" {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				break
			}
			end := in.n - br.Buffered()
			// A screen that gets only this data must be between two requests.
			alone := &screen{Conn: &pieces{text: string(text[:min(end, len(text))]), size: max(1, size)}}
			if b, err := io.ReadAll(alone); err != nil || alone.part != partLine || len(alone.line) > 0 || !bytes.Equal(b, text[:end]) {
				t.Fatalf("the server ends a request after %q, the screen is in part %d, %v", text[:min(end, len(text))], alone.part, err)
			}
		}
		if b, err := io.ReadAll(s); err == nil && s.part == partOver && len(b) == 0 && len(s.unread) > 0 {
			t.Errorf("refused, and %q is left", s.unread)
		} else if err != nil && !errors.Is(err, errUnclear) {
			t.Error(err)
		}
	})
}

type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// A body can arrive slowly, and can pause only for a while. The time in which the app
// does not read does not count.
func TestSlowBodyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &slowBody{}
		b := newBody(in, http.NewResponseController(in), inbound.MinimumRate)
		patience := inbound.MinimumRate.Patience
		l, err := b.lend()
		if err != nil {
			t.Fatal(err)
		}
		read := func() error { _, err := l.Read(make([]byte, 10)); return err }
		for range 10 {
			if err := read(); err != nil || time.Until(in.deadline) != patience {
				t.Fatalf("%v: the client has %v", err, time.Until(in.deadline))
			}
			time.Sleep(2 * patience)
		}
		in.after = time.Second
		var reads int
		for err = nil; err == nil; reads++ {
			err = read()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !b.broken() || !b.late() || reads < 28 || reads > 32 {
			t.Errorf("a byte per second: %v after %d bytes, want it cut off after about 30", err, reads)
		}
		in.after = 0
		b = newBody(in, http.NewResponseController(in), inbound.MinimumRate)
		if l, err = b.lend(); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil {
			t.Fatal(err)
		}
		b.answered()
		if !in.deadline.IsZero() {
			t.Error("the app answers, and the client is still in a hurry")
		}
		if err := read(); err != nil || !in.deadline.IsZero() {
			t.Errorf("%v: the client has %v", err, time.Until(in.deadline))
		}
		b = newBody(in, http.NewResponseController(in), inbound.MinimumRate)
		if l, err = b.lend(); err != nil {
			t.Fatal(err)
		}
		in.last = true
		if err := read(); !errors.Is(err, io.EOF) || !in.deadline.IsZero() {
			t.Errorf("%v: after the end the client has %v", err, time.Until(in.deadline))
		}
	})
}

// slowBody is a body with the client that sends it.
type slowBody struct {
	http.ResponseWriter
	deadline time.Time
	after    time.Duration // until the next byte arrives
	last     bool
}

func (s *slowBody) Read([]byte) (int, error) {
	if s.last {
		return 0, io.EOF
	}
	if !s.deadline.IsZero() && time.Until(s.deadline) <= s.after {
		time.Sleep(max(0, time.Until(s.deadline)))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(s.after)
	return 1, nil
}

func (s *slowBody) SetReadDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

// A client that sends a body too slowly gets an error response, and the instance no
// longer waits for it.
func TestSlowBodyIsAnswered(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.router.rate = inbound.Rate{Patience: 200 * time.Millisecond, BytesPerSecond: 500}
	w.instance("a", 0, echoLate)
	for _, lines := range [][]string{
		{"POST / HTTP/1.1", "Host: shop.dew.localhost", "Content-Length: 1000", "", "some"},
		{"POST / HTTP/1.1", "Host: shop.dew.localhost", "Transfer-Encoding: chunked", "", "3e8", "some"},
	} {
		c := w.raw(lines...)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusRequestTimeout || res.Header.Get("X-Cf-RouterError") != "bad_request" || !res.Close {
			t.Errorf("%q: %+v, %v, want 408 and the end of the connection", lines, res, err)
		}
		c.Close()
		testkit.EventuallyTrue(t, "the instance's connection is closed", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
	if res, _ := w.get("shop", "/"); res.StatusCode != 200 {
		t.Errorf("others get %d", res.StatusCode)
	}
}

// A client that stops in the middle of a body is disconnected.
func TestBodyThatStops(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, echoLate)
	for _, lines := range [][]string{
		{"POST / HTTP/1.1", "Host: shop.dew.localhost", "Content-Length: 1000", "", "some"},
		{"POST / HTTP/1.1", "Host: shop.dew.localhost", "Transfer-Encoding: chunked", "", "3e8", "some"},
	} {
		c := w.raw(lines...)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && res.StatusCode < 400 {
			t.Errorf("%q: %d", lines, res.StatusCode)
		}
		testkit.EventuallyTrue(t, "the instance's connection is closed", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	}
	if res, _ := w.get("shop", "/"); res.StatusCode != 200 {
		t.Errorf("others get %d", res.StatusCode)
	}
}
