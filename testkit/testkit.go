// Package testkit has helpers for the tests of many packages: waiting for a condition,
// free ports, folders for sockets. Only tests import it.
package testkit

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
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
		t.Fatalf("the condition was not met in time: %s: %v", what, err)
	}
}

// EventuallyTrue waits until ok returns true.
func EventuallyTrue(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Eventually(t, what, True(ok))
}

// Until waits until ok returns nil, and returns its last error after Patience. It is
// for tests that report more than Eventually does.
func Until(ok func() error) error { return until(ok, firstPause, lastPause) }

// UntilExactly is Until for measurements: it checks the condition every millisecond.
func UntilExactly(ok func() error) error { return until(ok, firstPause, firstPause) }

// UntilEvery is Until for measurements with another time between two checks.
func UntilEvery(pause time.Duration, ok func() error) error { return until(ok, pause, pause) }

func until(ok func() error, pause, longest time.Duration) error {
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

// errConditionFalse is the error of a condition that returns false.
var errConditionFalse = errors.New("the condition is false")

// True turns a condition into a function that returns an error if it is false.
func True(ok func() bool) func() error {
	return func() error {
		if ok() {
			return nil
		}
		return errConditionFalse
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
		t.Fatalf("the condition was not met in time: %s", what)
	}
}

// Stays fails the test if ok returns an error within the given time. It is for events
// that must not happen, which a test cannot wait for.
func Stays(t testing.TB, what string, within time.Duration, ok func() error) {
	t.Helper()
	for end := time.Now().Add(within); ; <-time.After(firstPause) {
		last := time.Now().After(end)
		if err := ok(); err != nil {
			t.Fatalf("the condition did not stay true: %s: %v", what, err)
		}
		if last {
			return
		}
	}
}

// RandomPause waits for a random time that is shorter than longest. It is for tests that
// kill a process at a random moment and must pass for every moment.
func RandomPause(longest time.Duration) { <-time.After(rand.N(longest)) }

// Random returns a source of random values for a property test. A failed test prints the
// seed; DEW_TEST_SEED repeats it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("DEW_TEST_SEED"); text != "" {
		seed = Must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with DEW_TEST_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the values are no secrets
}

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

// Open is Must for a value that is closed at the end of the test.
func Open[T io.Closer](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(v, err)(t)
		t.Cleanup(func() { _ = v.Close() }) // the test could have closed it already
		return v
	}
}

// Listen listens on a free port of 127.0.0.1 until the test ends.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	return Open(net.Listen("tcp4", "127.0.0.1:0"))(t)
}

// Buffer stores everything that is written to it. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Reset discards everything that was written so far.
func (b *Buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// NoSymbols is the flag of `go build` that halves the time of linking. Programs without
// symbols still print the names of functions and the lines of a stack.
const NoSymbols = "-ldflags=-s -w"

// Programs builds dewd, dew, dew-init and dew-sftp for the tests of a folder directly below the
// top one, with other packages of the folder, and returns the folder of the programs.
// DEW_TEST_BIN has that folder if they are built already.
func Programs(t testing.TB, race bool, others ...string) string {
	t.Helper()
	if dir := os.Getenv("DEW_TEST_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	static := exec.Command("go", append([]string{"build", "-trimpath", NoSymbols, "-o", dir + "/", "../cmd/dew", "../cmd/dew-init", "../cmd/dew-sftp"}, others...)...)
	static.Env = append(os.Environ(), "CGO_ENABLED=0")
	dewd := exec.Command("go", "build", "-race="+strconv.FormatBool(race), "-trimpath", NoSymbols, "-o", dir+"/", "../cmd/dewd")
	for _, c := range []*exec.Cmd{static, dewd} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
	return dir
}

// ShortDir makes a temporary folder whose sockets fit the 107 characters of a socket's
// name: that of t.TempDir has the name of the test in it.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dew")
	if err == nil {
		err = os.Chmod(dir, 0o711) // users of containers find their root file system below it
	}
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

// NoPID is above every limit of pids, so that no process has it.
const NoPID = 1 << 30

// WriteFile writes a file, and the folders above it, and returns its path.
func WriteFile(t testing.TB, path, data string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil { //nolint:forbidigo // a file of a test need not be durable
		t.Fatal(err)
	}
	return path
}

// Touch creates empty files in a folder.
func Touch(t testing.TB, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		WriteFile(t, filepath.Join(dir, f), "")
	}
}

// Sleeper starts a process that exits with the test, or by itself after a minute. A
// test that waits for its exit without success then fails instead of hanging.
func Sleeper(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if args == nil {
		args = []string{"sleep", "60"}
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}
