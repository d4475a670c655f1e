package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// turnLimit is how long a probe waits for dewd itself before it contacts the app: for a
// free dial slot, and for the network namespace.
const turnLimit = 10 * time.Second

// Unchecked is the error of a probe that could not check: nothing is known about the
// app. It is neither a failure nor a success.
type Unchecked struct {
	Check  string // CheckPort or CheckHTTP
	Reason string // "this machine is too busy: dewd was not scheduled for 10s"
	Err    error  // the underlying error
}

func (u *Unchecked) Error() string { return "cannot run the " + u.Check + " check: " + u.Reason }

// Unwrap returns the underlying error.
func (u *Unchecked) Unwrap() error { return u.Err }

// clock measures only the time that the app takes, not dewd's own. It starts when the
// kernel has the connection attempt or the request. When the time is over, it cancels
// its context, and the waiting reader checks the kernel's data once more. So a response
// that arrived in time counts, even if dewd was not scheduled.
type clock struct {
	timeout time.Duration
	cancel  context.CancelFunc
	timer   *time.Timer
	asked   atomic.Pointer[time.Time]
}

// newClock returns a clock that has not started, and the context that it cancels.
func newClock(ctx context.Context, timeout time.Duration) (context.Context, *clock) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, &clock{timeout: timeout, cancel: cancel, timer: time.AfterFunc(turnLimit, cancel)}
}

// start gives the app its full timeout from now on.
func (c *clock) start() {
	now := time.Now()
	c.asked.Store(&now)
	c.timer.Reset(c.timeout)
}

func (c *clock) started() bool { return c.asked.Load() != nil }

func (c *clock) stop() {
	c.timer.Stop()
	c.cancel()
}

// timeoutError returns the error of a probe whose clock ended its wait for what. A timer
// that fires much too late means that dewd was not scheduled, and then the app may not
// have been either. A wait that was cut short means nothing.
func (c *clock) timeoutError(check, what string, err error) error {
	unchecked := &Unchecked{Check: check, Err: err}
	asked := c.asked.Load()
	if asked == nil || time.Since(*asked) < c.timeout {
		unchecked.Reason = fmt.Sprintf("dewd waited %s because too many other connections were being opened", turnLimit)
		return unchecked
	}
	if late := time.Since(*asked) - c.timeout; late > c.timeout/2 {
		unchecked.Reason = fmt.Sprintf("this machine is too busy: dewd was not scheduled for %s", late.Round(10*time.Millisecond))
		return unchecked
	}
	return &Failure{Check: check, Reason: fmt.Sprintf("%s did not answer within %s", what, c.timeout), Err: err}
}

// finalReadConn reads the data in the kernel, even if the deadline passed before the
// goroutine was scheduled. It never waits beyond the deadline.
type finalReadConn struct{ net.Conn }

func (l finalReadConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	sc, ok := l.Conn.(syscall.Conn)
	if n > 0 || !ok || !timedOut(err) {
		return n, err
	}
	raw, rawErr := sc.SyscallConn()
	if rawErr != nil {
		return n, err
	}
	var got int
	var gotErr error
	rawErr = raw.Control(func(fd uintptr) { got, gotErr = syscall.Read(int(fd), p) })
	switch {
	case rawErr != nil || errors.Is(gotErr, syscall.EAGAIN) || errors.Is(gotErr, syscall.EINTR):
		return 0, err
	case gotErr != nil:
		return 0, os.NewSyscallError("read", gotErr)
	case got == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return got, nil
}
