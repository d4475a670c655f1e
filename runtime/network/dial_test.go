//go:build integration

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	goruntime "runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Apps that answer no connection attempt do not block other dials, however many
// attempts wait for them.
func TestHungAppBlocksNoOtherDial(t *testing.T) {
	n := New(t.TempDir(), "dew0", netip.MustParsePrefix("10.201.16.0/20"))
	// A thread for this test alone, because any other thread can be in the namespace of
	// an instance for a moment. This includes the first thread of the process.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := os.Symlink(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), n.Path(someInstance)); err != nil {
		t.Fatal(err)
	}
	hung := neverAccepts(t)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	for range 2 * maxDials {
		go func() {
			_, err := n.Dial(ctx, someInstance, "tcp4", hung)
			waiting <- err
		}()
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	soon, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	for range 4 * maxDials { // so that the hanging ones have had their turns
		c, err := n.Dial(soon, someInstance, "tcp4", l.Addr().String())
		if err != nil {
			t.Fatalf("cannot dial an app that answers: %v", err)
		}
		_ = c.Close()
	}
	cancel()
	for range 2 * maxDials {
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want context canceled", err)
		}
	}
}

// neverAccepts returns the address of a listener whose queue is full.
func neverAccepts(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp4", addrPort(own).String()) // the queue holds one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return addrPort(own).String()
}
