package drain

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// world is a log and its drains.
type world struct {
	t       *testing.T
	db      *store.DB
	logs    *logstream.Logs
	log     *logstream.Log
	drains  *Drains
	roots   *x509.CertPool
	stop    func()
	printed int

	restricted bool // for the first target
	initial    TLS  // of the first target

	mu      sync.Mutex // guards the field below
	targets []Target
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	logs, err := logstream.Open(t.TempDir(), logstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, logs: logs, stop: func() {}}
	if w.log, err = logs.App("app-guid"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop()
		if err := errors.Join(logs.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// start runs a drain to url, like a starting daemon.
func (w *world) start(url string) {
	w.t.Helper()
	w.targets = []Target{{App: "app-guid", URL: url, Name: "papers", Restricted: w.restricted, TLS: w.initial}}
	w.drains = New(Config{
		DB: w.db, Logs: w.logs, Targets: func() ([]Target, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.targets), nil
		},
		Host: func(string) string { return "o.s.a" }, Roots: w.roots, Logger: slog.New(slog.DiscardHandler),
	})
	w.drains.retry = 10 * time.Millisecond
	w.drains.rest = time.Hour // a busy machine reads its data later
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.drains.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	testkit.EventuallyTrue(w.t, "the drain begins", func() bool { return len(w.drains.Stats()) == 1 })
}

// print appends n numbered lines.
func (w *world) print(n int) {
	w.t.Helper()
	for range n {
		w.printed++
		err := w.log.Append(logstream.Envelope{
			Source: logstream.Source{Type: "APP/PROC/WEB"}, Stream: logstream.Out, Text: []byte("line " + strconv.Itoa(w.printed)),
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// receiver is a syslog server over TCP.
type receiver struct {
	t       *testing.T
	address string

	mu    sync.Mutex
	l     net.Listener
	conns []net.Conn
	got   []int // line numbers

	secure *tls.Config     // nil: without TLS
	seen   func(*tls.Conn) // called after a handshake, with mu locked
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, address: "127.0.0.1:0"}
	r.start()
	t.Cleanup(func() { r.end(false) })
	return r
}

func (r *receiver) start() {
	r.t.Helper()
	var l net.Listener
	testkit.EventuallyTrue(r.t, "the address is free", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", r.address)
		return err == nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.l, r.address = l, l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, c)
			r.mu.Unlock()
			go r.accept(c)
		}
	}()
}

// accept reads from a connection, after the handshake if it uses TLS.
func (r *receiver) accept(c net.Conn) {
	if r.secure == nil {
		r.read(c)
		return
	}
	secure := tls.Server(c, r.secure)
	if secure.HandshakeContext(r.t.Context()) != nil {
		_ = secure.Close()
		return
	}
	r.mu.Lock()
	r.seen(secure)
	r.mu.Unlock()
	r.read(secure)
}

// read reads frames until the connection is closed.
func (r *receiver) read(c net.Conn) {
	b := bufio.NewReader(c)
	for {
		size, err := b.ReadString(' ')
		if err != nil {
			return
		}
		n, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil {
			r.t.Errorf("no frame begins with %q", size)
			return
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(b, msg); err != nil {
			return
		}
		if _, text, ok := strings.Cut(string(msg), "line "); ok {
			number, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				r.t.Errorf("%q: %v", msg, err)
			}
			r.mu.Lock()
			r.got = append(r.got, number)
			r.mu.Unlock()
		}
	}
}

// end closes the connections: cleanly, or with a reset.
func (r *receiver) end(abrupt bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.l.Close()
	for _, c := range r.conns {
		if abrupt {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
	}
	r.conns = nil
}

func (r *receiver) lines() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// complete returns how many of the lines 1 to n are missing, and how many arrived more
// than once.
func complete(got []int, n int) (missing, twice int) {
	seen := map[int]int{}
	for _, number := range got {
		seen[number]++
	}
	for i := 1; i <= n; i++ {
		if seen[i] == 0 {
			missing++
		}
		twice += max(seen[i]-1, 0)
	}
	return missing, twice
}

func (w *world) arrived(r *receiver) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, fmt.Sprintf("%d lines arrive", w.printed), func() bool {
		missing, _ := complete(r.lines(), w.printed)
		return missing == 0
	})
}

// The receiver and the daemon restart cleanly several times: every line arrives once.
// Lines from before the drain was bound do not arrive.
func TestEveryLineOnce(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	if err := w.log.Append(logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Out, Text: []byte("line 999999")}); err != nil {
		t.Fatal(err)
	}
	w.start("syslog://" + r.address)
	for range 3 {
		w.print(500)
		w.arrived(r)
		r.end(false)
		w.print(500)
		r.start()
		w.arrived(r)
		w.stop()
		w.print(10)
		w.start("syslog://" + r.address)
	}
	w.arrived(r)
	if _, twice := complete(r.lines(), w.printed); twice != 0 || slices.Contains(r.lines(), 999999) {
		t.Errorf("%d lines came twice, the one from before the binding came: %v", twice, slices.Contains(r.lines(), 999999))
	}
}

// A connection reset loses no line either, and the duplicate lines are counted.
func TestConnectionReset(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.start("syslog://" + r.address)
	for range 3 {
		w.print(2000)
		testkit.EventuallyTrue(t, "something arrives", func() bool { return len(r.lines()) > w.printed/2 })
		r.end(true)
		r.start()
		w.arrived(r)
	}
	_, twice := complete(r.lines(), w.printed)
	if counted := w.drains.Stats()[0].Repeated; uint64(twice) > counted {
		t.Errorf("%d lines came twice, %d were counted", twice, counted)
	}
}

// An unreachable receiver is reported once in the app's log, and so is its return.
func TestFailureIsReportedOnce(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	r.end(false)
	w.start("syslog://user:hidden@" + r.address)
	w.print(3)
	said := func() (out []string) {
		es, err := w.log.NewestOf(t.Context(), 100, logstream.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if e.Source.Type == "LGR" {
				out = append(out, string(e.Text))
			}
		}
		return out
	}
	testkit.EventuallyTrue(t, "the log tells", func() bool { return len(said()) > 0 })
	r.start()
	w.arrived(r)
	testkit.EventuallyTrue(t, "the log tells of the return", func() bool { return len(said()) == 2 })
	lines := said()
	if !strings.HasPrefix(lines[0], "drain papers: cannot send to syslog://"+r.address+": ") || !strings.Contains(lines[0], "connection refused") ||
		lines[1] != "drain papers: connected again to syslog://"+r.address || strings.Contains(strings.Join(lines, ""), "hidden") {
		t.Errorf("the log tells %q", lines)
	}
}

// Unbinding a drain deletes its position: bound again, it starts with new lines.
func TestUnbound(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.start("syslog://" + r.address)
	w.print(5)
	w.arrived(r)
	w.targets = nil
	w.drains.Changed()
	testkit.EventuallyTrue(t, "the drain ends", func() bool { return len(w.drains.Stats()) == 0 })
	testkit.EventuallyTrue(t, "its place is forgotten", func() bool {
		all, err := w.drains.positions.All()
		return err == nil && len(all) == 0
	})
	w.print(5)
	w.targets = []Target{{App: "app-guid", URL: "syslog://" + r.address, Name: "papers"}}
	w.drains.Changed()
	testkit.EventuallyTrue(t, "the drain begins", func() bool { return len(w.drains.Stats()) == 1 })
	w.print(5)
	testkit.EventuallyTrue(t, "new lines arrive", func() bool { return slices.Contains(r.lines(), 15) })
	if got := r.lines(); len(got) != 10 {
		t.Errorf("lines %v arrived, want 1 to 5 and 11 to 15", got)
	}
}

// Over HTTP the responses decide: failed lines are sent again, and refused lines do not
// block the others.
func TestPost(t *testing.T) {
	for _, scheme := range []string{"https", "https-batch"} {
		t.Run(scheme, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			var got []int
			requests := 0
			srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				user, password, _ := r.BasicAuth()
				if err != nil || user != "u" || password != "p" || r.URL.Path != "/in" {
					t.Errorf("asked %s as %s:%s, %v", r.URL, user, password, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if requests++; requests == 2 {
					rw.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				for l := range strings.Lines(string(body)) {
					if _, text, ok := strings.Cut(l, "line "); ok {
						n, err := strconv.Atoi(strings.TrimSpace(text))
						if err != nil {
							t.Error(err)
						}
						got = append(got, n)
					}
				}
				if requests == 4 {
					rw.WriteHeader(http.StatusBadRequest)
				}
			}))
			defer srv.Close()
			w.roots = srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			w.start(strings.Replace(srv.URL, "https://", scheme+"://u:p@", 1) + "/in")
			for range 5 {
				w.print(1)
				testkit.EventuallyTrue(t, "the line arrives", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(got) == w.printed
				})
			}
			if missing, twice := complete(got, 5); missing != 0 || twice != 0 {
				t.Errorf("lines %v arrived", got)
			}
			testkit.EventuallyTrue(t, "the refused line is counted", func() bool { return w.drains.Stats()[0].Refused == 1 })
		})
	}
}
