// Package health asks whether an instance works. A Probe asks once; Monitor asks
// again and again, first until the instance has started and then for as long as it
// lives; Watch does the same for readiness, which only decides about routes.
//
//	          every StartInterval            every Interval
//	start ──▶ starting ── first success ──▶ running ── first failure ──▶ *Sick
//	             └── StartTimeout passed ──▶ *Sick
//
// Probes dial from inside the instance's network namespace, through the Dialer
// they are given.
package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// The names of the checks, as Failure and Sick carry them.
const (
	CheckPort = "port"
	CheckHTTP = "http"
)

// maxAnswer bounds what a probe reads, of the header and again of the body.
const maxAnswer = 64 << 10

// Probe asks once. The error is a sentence for the user: which check failed, and
// how. It must return soon after ctx has ended.
type Probe func(ctx context.Context) error

// Dialer connects from inside the instance's network namespace.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Failure is a probe's answer that something does not work.
type Failure struct {
	Check  string // CheckPort or CheckHTTP
	Reason string // "connection to 10.201.0.2:8080 refused"
	Err    error  // what lies behind it; nil when the app answered
}

func (f *Failure) Error() string { return f.Check + " check failed: " + f.Reason }

// Unwrap gives what lies behind the failure.
func (f *Failure) Unwrap() error { return f.Err }

// Port asks whether something accepts TCP connections at addr.
func Port(dial Dialer, addr netip.AddrPort) Probe {
	t := target{check: CheckPort, dial: dial, addr: addr}
	return func(ctx context.Context) error {
		conn, err := t.connect(ctx)
		if err != nil {
			return err
		}
		// The connection was made; how it ends says nothing about the app.
		_ = conn.Close()
		return nil
	}
}

// HTTP asks whether GET path at addr answers 200. Redirects are not followed.
func HTTP(dial Dialer, addr netip.AddrPort, path string) Probe {
	t := target{check: CheckHTTP, dial: dial, addr: addr}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return func(ctx context.Context) error {
		began := time.Now()
		conn, err := t.connect(ctx)
		if err != nil {
			return err
		}
		status, err := get(ctx, conn, "http://"+addr.String()+path)
		if err != nil {
			return t.failed(ctx, "GET "+path, began, err)
		}
		if status != http.StatusOK {
			return &Failure{Check: CheckHTTP, Reason: fmt.Sprintf("GET %s answered %d, want %d", path, status, http.StatusOK)}
		}
		return nil
	}
}

// target is where a probe asks.
type target struct {
	check string
	dial  Dialer
	addr  netip.AddrPort
}

// connect dials addr; its error is the probe's.
func (t target) connect(ctx context.Context) (net.Conn, error) {
	began := time.Now()
	conn, err := t.dial(ctx, network(t.addr), t.addr.String())
	if err == nil {
		return conn, nil
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil, t.failed(ctx, "connection to "+t.addr.String(), began, err)
	}
	reason := fmt.Sprintf("connection to %s refused", t.addr)
	if lo, ok := t.onLoopback(ctx); ok {
		reason = fmt.Sprintf("the app listens on %s only; the platform reaches an app on 0.0.0.0", lo)
	}
	return nil, &Failure{Check: t.check, Reason: reason, Err: err}
}

// onLoopback finds the commonest reason for a refused connection: the app listens,
// but where nobody outside its container can reach it.
func (t target) onLoopback(ctx context.Context) (netip.AddrPort, bool) {
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		lo := netip.AddrPortFrom(ip, t.addr.Port())
		conn, err := t.dial(ctx, network(lo), lo.String())
		if err != nil {
			continue
		}
		_ = conn.Close() // only asked whether somebody is there
		return lo, true
	}
	return netip.AddrPort{}, false
}

// failed makes the sentence for an attempt that got no answer.
func (t target) failed(ctx context.Context, attempt string, began time.Time, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // nobody wants to know any more
	}
	f := &Failure{Check: t.check, Err: err}
	netErr, isNet := errors.AsType[net.Error](err)
	errno, isErrno := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded) || (isNet && netErr.Timeout()):
		f.Reason = fmt.Sprintf("%s did not answer within %s", attempt, given(ctx, began))
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		f.Reason = attempt + " was closed without an answer"
	case isErrno:
		f.Reason = attempt + " failed: " + errno.Error() // without the addresses that net adds
	default:
		f.Reason = attempt + " failed: " + err.Error()
	}
	return f
}

// given is the time that an attempt had, rounded to what a person would say.
func given(ctx context.Context, began time.Time) time.Duration {
	d := time.Since(began)
	if deadline, ok := ctx.Deadline(); ok {
		d = deadline.Sub(began)
	}
	return d.Round(10 * time.Millisecond)
}

// get asks over conn and closes it. The dial is not left to the transport because
// that one goes on dialling after ctx has ended; nothing is kept alive because an
// open connection holds the network namespace of an instance that has gone.
func get(ctx context.Context, conn net.Conn, url string) (int, error) {
	defer conn.Close() //nolint:errcheck // the answer is known by then
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswer,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "dew-health")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // the answer is known by then
	// Drained so that the app does not see its write fail; the status has decided.
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	return resp.StatusCode, nil
}

// network names the protocol of a literal address, so that nothing is resolved or
// raced on other threads than the one inside the namespace.
func network(addr netip.AddrPort) string {
	if addr.Addr().Is4() {
		return "tcp4"
	}
	return "tcp6"
}
