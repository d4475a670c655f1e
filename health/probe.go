// Package health checks whether an instance works. A Probe checks once. Monitor checks
// repeatedly, first until the instance has started and then as long as it runs. Watch
// does the same for readiness, which affects only routes.
//
//	     at most StartInterval apart        every Interval, after a failure at once
//	start ──▶ starting ── first success ──▶ running ── Failures in a row ──▶ *Unhealthy
//	             └── StartTimeout passed ──▶ *Unhealthy
//
// Probes dial from inside the instance's network namespace, through the Dialer they are
// given. A probe that could not check returns *Unchecked, which is neither a success
// nor a failure: dewd's own failures stop no instance.
package health

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/app"
)

// The types of checks that have a probe, for Failure and Unhealthy.
const (
	CheckPort = app.CheckPort
	CheckHTTP = app.CheckHTTP
)

// probes are the probes by type of check. The other types do not contact the instance.
var probes = map[string]func(dial Dialer, addr netip.AddrPort, check app.HealthCheck) Probe{
	CheckPort: func(dial Dialer, addr netip.AddrPort, _ app.HealthCheck) Probe { return Port(dial, addr) },
	CheckHTTP: func(dial Dialer, addr netip.AddrPort, check app.HealthCheck) Probe {
		return HTTP(dial, addr, cmp.Or(check.Endpoint, "/"))
	},
}

// HasProbe reports whether a type of check contacts the instance.
func HasProbe(checkType string) bool { return probes[checkType] != nil }

// ProbeOf returns the probe of a check at addr, or nil if its type has none.
func ProbeOf(check app.HealthCheck, dial Dialer, addr netip.AddrPort) Probe {
	if !HasProbe(check.Type) {
		return nil
	}
	return probes[check.Type](dial, addr, check)
}

// maxAnswer is how many bytes of a response a probe reads.
const maxAnswer = 128 << 10

// Probe checks once, with a timeout for the app's response. The error is a message for
// users: a *Failure says which check failed and how, an *Unchecked why nothing is
// known. A probe returns soon after ctx is cancelled, and then with the error of ctx.
type Probe func(ctx context.Context, timeout time.Duration) error

// Dialer connects from inside the instance's network namespace. It calls the
// ConnectStart hook of net/http/httptrace when the connection attempt starts, as
// net.Dialer does: the time before that does not count for the app.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Failure is the error of a failed check.
type Failure struct {
	Check  string // CheckPort or CheckHTTP
	Reason string // "connection to 10.201.0.2:8080 refused"
	Path   string // of an http check
	Status int    // of the response; 0 if there was none
	Err    error  // the underlying error; nil if the app responded
}

func (f *Failure) Error() string { return f.Check + " check failed: " + f.Reason }

// Unwrap returns the underlying error.
func (f *Failure) Unwrap() error { return f.Err }

// Port checks whether a process accepts TCP connections at addr.
func Port(dial Dialer, addr netip.AddrPort) Probe {
	t := target{check: CheckPort, dial: dial, addr: addr}
	return func(ctx context.Context, timeout time.Duration) error {
		conn, err := t.connect(ctx, timeout)
		if err != nil {
			return err
		}
		// The connection was established; how it is closed says nothing about the app.
		_ = conn.Close()
		return nil
	}
}

// HTTP checks whether GET path at addr returns 200. It does not follow redirects.
func HTTP(dial Dialer, addr netip.AddrPort, path string) Probe {
	t := target{check: CheckHTTP, dial: dial, addr: addr}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return func(ctx context.Context, timeout time.Duration) error {
		conn, err := t.connect(ctx, timeout)
		if err != nil {
			return err
		}
		waiting, c := newClock(ctx, timeout)
		defer c.stop()
		status, err := get(waiting, conn, "http://"+addr.String()+path, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return unanswered("GET "+path, c, err)
		}
		if status != http.StatusOK {
			return &Failure{Check: CheckHTTP, Path: path, Status: status, Reason: fmt.Sprintf("GET %s answered %d, want %d", path, status, http.StatusOK)}
		}
		return nil
	}
}

// target is the address that a probe contacts.
type target struct {
	check string
	dial  Dialer
	addr  netip.AddrPort
}

// connect dials addr; its error is the probe's.
func (t target) connect(ctx context.Context, timeout time.Duration) (net.Conn, error) {
	waiting, c := newClock(ctx, timeout)
	defer c.stop()
	traced := httptrace.WithClientTrace(waiting, &httptrace.ClientTrace{ConnectStart: func(string, string) { c.start() }})
	conn, err := t.dial(traced, network(t.addr), t.addr.String())
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, &Failure{Check: t.check, Reason: t.refused(ctx, timeout), Err: err}
	case waiting.Err() != nil:
		return nil, c.timeoutError(t.check, t.addr.String(), err)
	case !c.started():
		return nil, &Unchecked{Check: t.check, Reason: err.Error(), Err: err}
	}
	return nil, &Failure{Check: t.check, Reason: fmt.Sprintf("connection to %s failed: %s", t.addr, cause(err)), Err: err}
}

// refused looks for the most common reason of a refused connection: the app listens on
// an address that is not reachable from outside its container.
func (t target) refused(ctx context.Context, timeout time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		lo := netip.AddrPortFrom(ip, t.addr.Port())
		conn, err := t.dial(ctx, network(lo), lo.String())
		if err != nil {
			continue
		}
		_ = conn.Close() // only checked that the port is open
		return fmt.Sprintf("the app listens only on %s; it must listen on 0.0.0.0", lo)
	}
	return fmt.Sprintf("connection to %s refused", t.addr)
}

// unanswered returns the error for a request that was sent and got no response.
func unanswered(request string, c *clock, err error) error {
	f := &Failure{Check: CheckHTTP, Err: err}
	switch {
	case timedOut(err):
		return c.timeoutError(CheckHTTP, request, err)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		f.Reason = request + " failed: the app closed the connection without a response"
	default:
		f.Reason = request + " failed: " + cause(err)
	}
	return f
}

func timedOut(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || (ok && netErr.Timeout())
}

// cause returns the innermost text of err: packages net and net/http prefix it with
// details that the message already has.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// get sends a request over conn and closes it. It does not use http.Transport, which
// continues to dial after ctx is cancelled and reports a closed connection in several
// ways. It also keeps connections, which hold the network namespace of a stopped
// instance.
func get(ctx context.Context, conn net.Conn, url string, c *clock) (int, error) {
	defer conn.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "dew-health")
	req.Close = true
	// Cancelling ctx ends reading and writing. A deadline in the past cannot fail on a
	// connection that is still open.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.start()
	if err := req.Write(conn); err != nil {
		return 0, err
	}
	c.start() // again: the app has the request now
	answer := &io.LimitedReader{R: finalReadConn{conn}, N: maxAnswer}
	resp, err := finalResponse(bufio.NewReader(answer), req)
	if err != nil && answer.N == 0 {
		return 0, fmt.Errorf("the first %d KiB of the response contain no complete header", maxAnswer>>10)
	}
	if err != nil {
		return 0, err
	}
	// Read the body, so that the app's write does not fail. The status has already
	// decided.
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// finalResponse skips informational responses, such as 103.
func finalResponse(r *bufio.Reader, req *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// network returns the network of a literal address. So nothing is resolved or raced on
// threads outside the namespace.
func network(addr netip.AddrPort) string {
	if addr.Addr().Is4() {
		return "tcp4"
	}
	return "tcp6"
}
