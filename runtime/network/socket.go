package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// Dial connects from inside the namespace of an instance. The address must be a
// literal: a name would be resolved on another thread, in another namespace. Only the
// socket is created in the namespace, and it stays there. The wait for the connection
// needs no thread in the namespace, so an app that does not answer blocks no other
// dial.
func (n *Bridge) Dial(ctx context.Context, id runtime.InstanceID, kind, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: it is not an address with a port: %w", address, err)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	fd, err := n.socket(ctx, id, kind, to)
	if err != nil {
		return nil, err
	}
	conn, err := connectSocket(ctx, fd, to)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: kind, Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	return conn, nil
}

// socket creates a socket in the namespace of an instance.
func (n *Bridge) socket(ctx context.Context, id runtime.InstanceID, kind string, to netip.AddrPort) (int, error) {
	family, typ := unix.AF_INET, unix.SOCK_STREAM
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	switch strings.TrimRight(kind, "46") {
	case "tcp":
	case "udp":
		typ = unix.SOCK_DGRAM
	default:
		return -1, net.UnknownNetworkError(kind)
	}
	select {
	case n.dials <- struct{}{}:
		defer func() { <-n.dials }()
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	}
	fd := -1
	err := inNamespace(n.Path(id), func() error {
		var err error
		fd, err = unix.Socket(family, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil && fd >= 0 { // the thread could not return from the namespace
		_ = unix.Close(fd)
	}
	return fd, err
}

// connectSocket connects a socket, and closes it on failure.
func connectSocket(ctx context.Context, fd int, to netip.AddrPort) (net.Conn, error) {
	err := unix.Connect(fd, sockaddr(to))
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.ConnectStart != nil {
		trace.ConnectStart("tcp", to.String())
	}
	f := os.NewFile(uintptr(fd), to.String())
	defer f.Close()
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = await(ctx, f)
	}
	if err == nil && isSelfConnection(fd) {
		err = unix.ECONNREFUSED
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		err = os.NewSyscallError("connect", errno)
	}
	if err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// await waits until a connection is established or refused. When ctx is done, it checks
// once more: a connection that was established while dewd was not scheduled counts.
func await(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// It cannot fail on an open socket.
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(longAgo) })
	defer stop()
	var answer error
	look := func(fd uintptr) bool {
		answer = connected(int(fd))
		return !errors.Is(answer, unix.EINPROGRESS)
	}
	if err = raw.Write(look); err == nil {
		return answer
	}
	if e := raw.Control(func(fd uintptr) { look(fd) }); e != nil {
		return e
	}
	if errors.Is(answer, unix.EINPROGRESS) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return answer
}

// connected returns the kernel's answer to a connection attempt: EINPROGRESS until
// there is one.
func connected(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if errno != 0 {
		return unix.Errno(errno)
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return unix.EINPROGRESS
	}
	return nil
}

// isSelfConnection reports whether the kernel chose the dialled port as the socket's own port
// and connected the socket to itself. In that case no program listens there.
func isSelfConnection(fd int) bool {
	here, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	there, err := unix.Getpeername(fd)
	return err == nil && addrPort(here).IsValid() && addrPort(here) == addrPort(there)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
