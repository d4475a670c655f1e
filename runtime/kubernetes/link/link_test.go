package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// connected returns a client for a handler on the other side of a connection.
func connected(t *testing.T, h http.Handler) *Client {
	t.Helper()
	l := testkit.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			err = Serve(ctx, conn, Hello{Exec: "main", PID: 7}, h)
		}
		served <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, hello, err := NewClient(t.Context(), conn, time.Minute)
	if err != nil || hello != (Hello{Exec: "main", PID: 7}) {
		t.Fatalf("hello = %+v, %v", hello, err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		cancel()
		<-served
	})
	return c
}

func TestCallsAndStreams(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		in, out := Answer(w, r)
		_, _ = io.Copy(out, in)
	})
	mux.HandleFunc("/refused", func(w http.ResponseWriter, _ *http.Request) {
		Fail(w, http.StatusBadGateway, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	})
	c := connected(t, mux)
	var got Hello
	if err := c.Call(t.Context(), "/echo", Hello{Exec: "x"}, &got); err != nil || got.Exec != "x" {
		t.Errorf("call = %+v, %v", got, err)
	}
	if err := c.Call(t.Context(), "/refused", nil, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error = %v, want that of the kernel", err)
	}
	s, err := c.Stream(t.Context(), "/echo", []byte("first "))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "second"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("first second"))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "first second" {
		t.Errorf("stream = %q, %v", b, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	testkit.Closed(t, "the connection has ended", c.Done())
}

// A frame is read as it was written. Bytes of another origin cause an error, never a
// panic or a large allocation.
func FuzzReadFrame(f *testing.F) {
	var b bytes.Buffer
	if err := NewFrames(&b).Write(KindOutput, Position{1, 1, 77}.Encode(), []byte("hello")); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, body, err := ReadFrame(bytes.NewReader(data), nil)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := NewFrames(&again).Write(k, body); err != nil || !bytes.HasPrefix(data, again.Bytes()) {
			t.Errorf("%q is read as %q, %v", data, again.Bytes(), err)
		}
		if p, rest, err := DecodePosition(body); err == nil && !bytes.Equal(append(p.Encode(), rest...), body) {
			t.Errorf("position %+v of %q", p, body)
		}
	})
}
