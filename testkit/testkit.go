// Package testkit has helpers for the tests of many packages: waiting for a condition,
// free ports, folders for sockets. Only tests import it.
package testkit

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Patience limits every wait. It is not a measurement: only a hang takes that long.
const Patience = 3 * time.Minute

// The time between two checks of a condition doubles from the first to the last value.
const firstPause, lastPause = time.Millisecond, 20 * time.Millisecond

// Eventually waits until ok returns nil. It fails the test with the last error after
// Patience.
func Eventually(t testing.TB, what string, ok func() error) {
	t.Helper()
	if err := Until(ok); err != nil {
		t.Fatalf("waited in vain: %s: %v", what, err)
	}
}

// EventuallyTrue waits until ok returns true.
func EventuallyTrue(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Eventually(t, what, True(ok))
}

// Until waits until ok returns nil, and returns its last error after Patience. It is
// for tests that report more than Eventually does.
func Until(ok func() error) error {
	pause := firstPause
	for end := time.Now().Add(Patience); ; pause = min(2*pause, lastPause) {
		err := ok()
		var final Final
		if errors.As(err, &final) {
			return final.error
		}
		if err == nil || time.Now().After(end) {
			return err
		}
		<-time.After(pause)
	}
}

// errFalse is the error of a condition that returns false.
var errFalse = errors.New("it is not so")

// True turns a condition into a function that returns an error if it is false.
func True(ok func() bool) func() error {
	return func() error {
		if ok() {
			return nil
		}
		return errFalse
	}
}

// Final is an error that waiting does not change: Until returns its inner error at
// once.
type Final struct{ error }

// Finally makes an error final.
func Finally(err error) error { return Final{err} }

// Closed waits until a channel is closed or returns a value.
func Closed[T any](t testing.TB, what string, done <-chan T) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(Patience):
		t.Fatalf("waited in vain: %s", what)
	}
}

// ShortDir creates a temporary folder whose sockets fit the 107 characters of a
// socket's name. The path of t.TempDir contains the name of the test and can exceed
// that limit.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dew")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// NeedRoot skips the test if it does not run as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// nextPort is the first port that no call of FreePorts in this process has returned.
var nextPort atomic.Int64

// The ports of FreePorts are below the kernel's range for outgoing connections.
const firstPort, lastPort = 21000, 32000

// FreePorts finds n consecutive ports that no program listens on now, and returns the
// first. No two calls return the same ports, and every test process starts at a
// different port.
func FreePorts(t testing.TB, n int) int {
	t.Helper()
	nextPort.CompareAndSwap(0, firstPort+int64(os.Getpid()%1000)*10)
	for {
		first := int(nextPort.Add(int64(n))) - n
		if first+n > lastPort {
			t.Fatal("no ports are free")
		}
		if areFree(t, first, n) {
			return first
		}
	}
}

func areFree(t testing.TB, first, n int) bool {
	t.Helper()
	var lc net.ListenConfig
	for port := first; port < first+n; port++ {
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			return false
		}
		defer l.Close() // keep all open, so that n ports are free at the same moment
	}
	return true
}
