package network

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func newSocket(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestConnectSocket(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	began := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{ConnectStart: func(string, string) { began++ }})
	c, err := connectSocket(ctx, newSocket(t), to)
	if err != nil || began != 1 || c.RemoteAddr().String() != to.String() {
		t.Fatalf("connected = %v, %v, told %d times, want a connection to %s told once", c, err, began, to)
	}
	if _, ok := c.(*net.TCPConn); !ok {
		t.Errorf("connection is a %T", c)
	}
	_ = c.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = connectSocket(ctx, newSocket(t), to)
	if want := "connect: connection refused"; !errors.Is(err, unix.ECONNREFUSED) || err.Error() != want || began != 2 {
		t.Errorf("error = %v, told %d times, want %q told twice", err, began, want)
	}
}

// A connection that the kernel established in time counts, even if dewd sees it after
// the deadline.
func TestConnectionSeenLate(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(string, string) {
			c, err := l.Accept() // the app has accepted it
			if err != nil {
				t.Error(err)
			}
			_ = c.Close()
			cancel()
			over := make(chan struct{})
			context.AfterFunc(ctx, func() { close(over) })
			<-over
		}})
		c, err := connectSocket(ctx, newSocket(t), netip.MustParseAddrPort(l.Addr().String()))
		if err != nil {
			t.Fatalf("error = %v, want the connection that was made", err)
		}
		_ = c.Close()
	}
}

// await must check again if its deadline passed before the first check.
func TestAwaitLooksAfterTheDeadline(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd := newSocket(t)
	if err := unix.Connect(fd, sockaddr(netip.MustParseAddrPort(l.Addr().String()))); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.SetWriteDeadline(longAgo); err != nil {
		t.Fatal(err)
	}
	if err := await(ctx, f); err != nil {
		t.Errorf("error = %v, want none", err)
	}
}

// A socket that the kernel connected to itself counts as refused.
func TestConnectionToItselfIsRefused(t *testing.T) {
	t.Parallel()
	fd := newSocket(t)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := connectSocket(t.Context(), fd, addrPort(own)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connected = %v, %v, want it refused", c, err)
	}
}
