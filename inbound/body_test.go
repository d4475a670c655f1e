package inbound_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/inbound"
)

// pipes is a listener without a network, so that it works in virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// reader responds with the number of bytes received, or with the read error.
func reader(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/unread" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	n, err := io.Copy(io.Discard, r.Body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.WriteHeader(http.StatusRequestTimeout)
	}
	fmt.Fprint(w, n)
}

// sent is a body that a client sends in pieces, with a pause before each.
type sent struct {
	path   string
	pieces int
	size   int
	pause  time.Duration
}

// send sends it in virtual time and returns the status and the time of the response.
func send(t *testing.T, s sent) (status int, after time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		server := &http.Server{Handler: inbound.MinimumRate.Bodies(http.HandlerFunc(reader)), ReadHeaderTimeout: time.Second}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		near, far := net.Pipe()
		l <- far
		began := time.Now()
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", s.path, s.pieces*s.size)
			piece := make([]byte, s.size)
			for range s.pieces {
				time.Sleep(s.pause)
				if _, err := near.Write(piece); err != nil {
					return // it was aborted
				}
			}
		}()
		res, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		status, after = res.StatusCode, time.Since(began)
		if status == http.StatusOK && (err != nil || string(text) != strconv.Itoa(s.pieces*s.size)) {
			t.Errorf("%+v: %s bytes arrived, %v", s, text, err)
		}
		near.Close()
		<-sending
		close(l)
		<-ended
		_ = server.Close() // already closed
		synctest.Wait()
	})
	return status, after
}

// A body must arrive at a minimum rate, whatever its size.
func TestBodies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sent   sent
		status int
	}{
		{"at once", sent{"/", 1, 1 << 20, 0}, 200},
		{"a byte per second", sent{"/", 3600, 1, time.Second}, 408},
		{"100 bytes per second", sent{"/", 3600, 100, time.Second}, 408},
		{"nothing", sent{"/", 1, 10, time.Hour}, 408},
		{"stops after a fast start", sent{"/", 2, 1 << 20, 20 * time.Minute}, 408},
		{"an hour at 1 KiB per second", sent{"/", 3600, 1 << 10, time.Second}, 200},
		{"a minute's worth every 25 seconds", sent{"/", 100, 30_000, 25 * time.Second}, 200},
		{"small and slow, but soon over", sent{"/", 20, 1, time.Second}, 200},
		{"nobody reads it", sent{"/unread", 3600, 1, time.Second}, 401},
	} {
		status, after := send(t, tt.sent)
		if status != tt.status {
			t.Errorf("%s: status %d after %v, want %d", tt.name, status, after, tt.status)
		}
		if status != http.StatusOK && after > 45*time.Second {
			t.Errorf("%s: cut off after %v, want 45s at most", tt.name, after)
		}
	}
}

// The connection stays open after the body, without a deadline.
func TestBodiesKeepTheConnection(t *testing.T) {
	rate := inbound.Rate{Patience: time.Minute, BytesPerSecond: 1}
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		server := &http.Server{Handler: rate.Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reader(w, r)
			time.Sleep(time.Hour) // a deadline of the body would abort the request by then
			if r.Context().Err() != nil {
				t.Error("the request ended while it was answered")
			}
		})), ReadHeaderTimeout: time.Second}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		near, far := net.Pipe()
		l <- far
		in := bufio.NewReader(near)
		for range 2 {
			fmt.Fprint(near, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != http.StatusOK || res.Close {
				t.Fatalf("%+v, %v, want 200 on a connection that goes on", res, err)
			}
			_, _ = io.Copy(io.Discard, res.Body) // the next response follows it
			time.Sleep(time.Hour)
		}
		near.Close()
		close(l)
		<-ended
		_ = server.Close() // already closed
		synctest.Wait()
	})
}
