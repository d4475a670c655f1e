package sshd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// A forward is dialled inside the instance, with the client's address. Closing one
// direction leaves the other open.
func TestForward(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.client("cf:" + appGUID + "/0")
	for _, address := range []string{"localhost:8080", "127.0.0.1:8080", "[::1]:99", "db.internal:5432"} {
		conn, err := c.Dial("tcp", address)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		r := bufio.NewReader(conn)
		if line, err := r.ReadString('\n'); err != nil || line != "tcp "+address+"\n" {
			t.Errorf("%s: dialled %q, %v", address, line, err)
		}
		half, ok := conn.(interface{ CloseWrite() error })
		if !ok {
			t.Fatalf("%T has no CloseWrite", conn)
		}
		_, err = io.WriteString(conn, "there and back")
		if err := errors.Join(err, half.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if back, err := io.ReadAll(r); err != nil || string(back) != "there and back" {
			t.Errorf("%s: got back %q, %v", address, back, err)
		}
		_ = conn.Close()
	}
}

func TestForwardSocket(t *testing.T) {
	w := newWorld(t, Limits{})
	conn, err := w.client("cf:"+appGUID+"/0").Dial("unix", "/tmp/app.sock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	if back, err := io.ReadAll(conn); err != nil || string(back) != "hello" {
		t.Errorf("got back %q, %v", back, err)
	}
	_ = conn.Close()
	w.eventually("the socket is let go", func() bool { return w.sessions() == 0 })
}

func TestForwardRefused(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.client("cf:" + appGUID + "/0")
	for _, tt := range []struct {
		kind    string
		payload []byte
		reason  ssh.RejectionReason
	}{
		{"direct-tcpip", port("127.0.0.1", 1), ssh.ConnectionFailed}, // no listener
		{"direct-tcpip", port("", 80), ssh.ConnectionFailed},
		{"direct-tcpip", port("a b", 80), ssh.ConnectionFailed},
		{"direct-tcpip", port("localhost", 0), ssh.ConnectionFailed},
		{"direct-tcpip", port("localhost", 70000), ssh.ConnectionFailed},
		{"direct-tcpip", []byte("garbage"), ssh.ConnectionFailed},
		{"direct-streamlocal@openssh.com", []byte("garbage"), ssh.ConnectionFailed},
		{"direct-streamlocal@openssh.com", socket(""), ssh.ConnectionFailed},
		{"direct-streamlocal@openssh.com", socket("/" + strings.Repeat("x", 200)), ssh.ConnectionFailed},
		{"x11", nil, ssh.UnknownChannelType},
		{"forwarded-tcpip", nil, ssh.UnknownChannelType},
	} {
		_, _, err := c.OpenChannel(tt.kind, tt.payload)
		if open := (*ssh.OpenChannelError)(nil); !errors.As(err, &open) || open.Reason != tt.reason || open.Message == "" {
			t.Errorf("%s %q = %v, want it refused with %v and a reason", tt.kind, tt.payload, err, tt.reason)
		}
	}
	if ok, _, err := c.SendRequest("tcpip-forward", true, nil); ok || err != nil {
		t.Errorf("tcpip-forward = %v, %v; want it refused", ok, err)
	}
}

func port(host string, n uint32) []byte {
	return ssh.Marshal(struct {
		Host string
		Port uint32
		From string
		At   uint32
	}{host, n, "127.0.0.1", 5})
}

func socket(path string) []byte {
	return ssh.Marshal(struct {
		Path, Reserved string
		Unused         uint32
	}{path, "", 0})
}

func FuzzParseForward(f *testing.F) {
	f.Add(port("localhost", 80))
	f.Add(port("::1", 65535))
	f.Add(socket("/tmp/x"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if address, err := parsePort(payload); err == nil && (strings.ContainsAny(address, " \n\x00/") || !strings.Contains(address, ":")) {
			t.Errorf("address %q", address)
		}
		if path, err := parseSocket(payload); err == nil && (path == "" || len(path) > 107 || strings.ContainsRune(path, 0)) {
			t.Errorf("path %q", path)
		}
	})
}

// A forward is closed when the instance stops, even if it leads to another host.
func TestForwardEndsWithInstance(t *testing.T) {
	w := newWorld(t, Limits{Alive: 5 * time.Millisecond})
	conn, err := w.client("cf:"+appGUID+"/0").Dial("tcp", "192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("reading to the end: %v", err)
	}
}

// The number of forwards that wait for a connection is limited, because others need the
// same threads.
func TestLimitOfDials(t *testing.T) {
	w := newWorld(t, Limits{Dials: 1})
	w.s.dials <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.s.dial(ctx, "i", "127.0.0.1:80"); err == nil || !has(err.Error(), "too many forwarded connections") {
		t.Errorf("dial = %v, want that there are too many", err)
	}
	<-w.s.dials
	conn, err := w.s.dial(t.Context(), "i", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if len(w.s.dials) != 0 {
		t.Error("a forward that is open still counts as waiting")
	}
}
