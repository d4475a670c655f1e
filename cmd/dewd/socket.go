package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/dewrun/dew/cmd/dewd/folders"
	"github.com/dewrun/dew/inbound"
)

const (
	socketName    = folders.SocketName
	socketGroup   = "dew"
	shutdownLimit = 5 * time.Second
)

// openSocket returns the listener of the local socket: the one from systemd, or a new
// one. It is opened last, so a socket that responds means a working daemon.
func openSocket(run string) (net.Listener, error) {
	passed, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("cannot get the sockets from systemd: %w", err)
	}
	l, err := chooseSocket(passed)
	if l != nil || err != nil {
		return l, err
	}
	return listenLocal(filepath.Join(run, socketName))
}

// chooseSocket finds the local socket among those from systemd.
func chooseSocket(passed map[string][]net.Listener) (net.Listener, error) {
	var mine net.Listener
	for name, ls := range passed {
		if name != socketName || len(ls) != 1 || ls[0] == nil {
			return nil, fmt.Errorf("cannot use socket %q of systemd: dewd uses only one socket, named %s (set this FileDescriptorName= in the socket unit)", name, socketName)
		}
		mine = ls[0]
	}
	return mine, nil
}

// listenLocal opens the socket for root and the group dew. The file mode controls
// access.
func listenLocal(path string) (net.Listener, error) {
	// A killed daemon left it. The holder of the run folder's lock can remove it.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot remove the socket of an earlier dewd: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w (choose another folder with --run)", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot set the mode of the socket: %w", err)
	}
	g, err := user.LookupGroup(socketGroup)
	if err != nil {
		return l, nil // no such group, so only root has access
	}
	gid, err := strconv.Atoi(g.Gid)
	if err == nil {
		err = os.Chown(path, 0, gid)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot change the group of the socket to %s: %w", socketGroup, err)
	}
	return l, nil
}

// serve serves a listener until ctx is done.
func serve(ctx context.Context, l net.Listener, s *http.Server, log *slog.Logger) error {
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("cannot accept connections at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	if err := s.Shutdown(bounded); err != nil {
		return s.Close() // a client that keeps its connection must not delay the exit
	}
	return nil
}

// idleTimeout is how long a connection without a request stays open.
const idleTimeout = 2 * time.Minute

// apiServer returns the server of the API, the authorization server and the
// notification service. It disconnects clients that do not finish their requests.
func apiServer(h http.Handler) *http.Server {
	return &http.Server{Handler: inbound.MinimumRate.Bodies(h), ReadHeaderTimeout: shutdownLimit, IdleTimeout: idleTimeout}
}

// listenTCP opens an address, and for a loopback address also its counterpart, because
// some clients try ::1 first and some never do.
func listenTCP(address, flag string) ([]net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w (stop the program that uses the port, or choose another address with --%s)", err, flag)
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	other := map[string]string{"127.0.0.1": "::1", "::1": "127.0.0.1"}[host]
	if err != nil || other == "" {
		return []net.Listener{l}, err
	}
	second, err := net.Listen("tcp", net.JoinHostPort(other, port))
	if err != nil { // a machine without IPv6
		return []net.Listener{l}, nil
	}
	return []net.Listener{l, second}, nil
}
