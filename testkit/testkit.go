// Package testkit has what the tests of many packages need: waiting for a condition,
// free ports, folders for sockets. Only tests import it.
package testkit

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Patience bounds every wait. It is no measurement: only a hang takes that long.
const Patience = 3 * time.Minute

// The time between two looks at a condition: it doubles from the first to the last.
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
// for tests that have more to say than Eventually.
func Until(ok func() error) error { return until(ok, lastPause) }

// UntilExactly is Until for measurements: it looks at the condition every millisecond.
func UntilExactly(ok func() error) error { return until(ok, firstPause) }

func until(ok func() error, longest time.Duration) error {
	pause := firstPause
	for end := time.Now().Add(Patience); ; pause = min(2*pause, longest) {
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

// errFalse is the error of a condition that says no more than yes or no.
var errFalse = errors.New("it is not so")

// True makes an error of a condition that is not met.
func True(ok func() bool) func() error {
	return func() error {
		if ok() {
			return nil
		}
		return errFalse
	}
}

// Final is an error that waiting does not change: Until returns its inner error at once.
type Final struct{ error }

// Finally makes an error final.
func Finally(err error) error { return Final{err} }

// Closed waits until a channel is closed or gives a value.
func Closed[T any](t testing.TB, what string, done <-chan T) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(Patience):
		t.Fatalf("waited in vain: %s", what)
	}
}

// Stays fails the test if ok returns an error within the given time. It is for events
// that must not happen, which a test cannot wait for.
func Stays(t testing.TB, what string, within time.Duration, ok func() error) {
	t.Helper()
	for end := time.Now().Add(within); ; <-time.After(firstPause) {
		last := time.Now().After(end)
		if err := ok(); err != nil {
			t.Fatalf("it did not stay so: %s: %v", what, err)
		}
		if last {
			return
		}
	}
}

// RandomPause waits for a random time that is shorter than longest. It is for tests that
// kill a process at a random moment, where any moment must do.
func RandomPause(longest time.Duration) { <-time.After(rand.N(longest)) }

// Must returns the value of a call that must succeed: testkit.Must(os.ReadFile(name))(t).
func Must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Open is Must for a value that the end of the test closes.
func Open[T io.Closer](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(v, err)(t)
		t.Cleanup(func() { _ = v.Close() }) // the test may have closed it
		return v
	}
}

// Listen listens on a free port of 127.0.0.1 until the test ends.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	return Open(net.Listen("tcp4", "127.0.0.1:0"))(t)
}

// Buffer keeps everything that is written to it. Goroutines can write and read it at the
// same time.
type Buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// ShortDir makes a temporary folder whose sockets fit the 107 characters of a socket's
// name: that of t.TempDir has the name of the test in it.
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

// NeedRoot skips the test for other users.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// nextPort is the first port that no call of FreePorts in this process has had.
var nextPort atomic.Int64

// The ports of FreePorts are below those that the kernel gives to connections.
const firstPort, lastPort = 21000, 32000

// FreePorts finds n ports in a row that nobody listens on now, and returns the first.
// No two calls get the same, and every process of tests starts elsewhere.
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
		defer l.Close() // together: n ports are free at the same moment
	}
	return true
}
