package health

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/testkit"
)

// dewd's own failures say nothing about the app. No message has a negative time,
// however late dewd was.
func TestProbeThatCouldNotCheck(t *testing.T) {
	waits := func(d time.Duration) func(ctx context.Context) {
		return func(context.Context) { time.Sleep(d) }
	}
	turn := func(ctx context.Context) { <-ctx.Done() }
	for _, tt := range []struct {
		name          string
		before, after func(ctx context.Context) // run before the attempt starts, and after the time is over
		want          string
	}{
		{"no turn", turn, nil, "cannot run the port check: dewd waited 10s because too many other connections were being opened"},
		{"the turn came too late", func(ctx context.Context) { turn(ctx); time.Sleep(time.Second) }, nil, "cannot run the port check: dewd waited 10s because too many other connections were being opened"},
		{"a late turn is not the app's time", waits(9 * time.Second), nil, "port check failed: 10.201.0.2:8080 did not answer within 1s"},
		{"a little late", nil, waits(500 * time.Millisecond), "port check failed: 10.201.0.2:8080 did not answer within 1s"},
		{"too late", nil, waits(510 * time.Millisecond), "cannot run the port check: this machine is too busy: dewd was not scheduled for 510ms"},
		{"much too late", nil, waits(time.Hour), "cannot run the port check: this machine is too busy: dewd was not scheduled for 1h0m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
					if tt.before != nil {
						tt.before(ctx)
					}
					connecting(ctx)
					<-ctx.Done()
					if tt.after != nil {
						tt.after(ctx)
					}
					return nil, context.Cause(ctx)
				}
				err := Port(dial, eth0)(t.Context(), time.Second)
				if err == nil || err.Error() != tt.want || strings.Contains(err.Error(), "-") {
					t.Errorf("probe = %v, want %q", err, tt.want)
				}
				if want := strings.HasPrefix(tt.want, "cannot run"); unchecked(err) != want {
					t.Errorf("%#v: unchecked = %v, want %v", err, unchecked(err), want)
				}
			})
		})
	}
}

// A dial that fails before the attempt started is dewd's own failure.
func TestProbeWithoutAnAttempt(t *testing.T) {
	why := errors.New("cannot open network namespace of the instance: no such file or directory")
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, why }
	for name, probe := range map[string]Probe{"port": Port(dial, eth0), "http": HTTP(dial, eth0, "/")} {
		err := probe(t.Context(), time.Second)
		if want := "cannot run the " + name + " check: " + why.Error(); !unchecked(err) || err.Error() != want || !errors.Is(err, why) {
			t.Errorf("%s probe = %v, want %q", name, err, want)
		}
	}
}

// An app that uses its full timeout for the connection gets it again for the response.
func TestHTTPTimesTheAnswerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context) (net.Conn, error) {
			time.Sleep(900 * time.Millisecond)
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				_, _ = theirs.Read(make([]byte, 1024))
				time.Sleep(900 * time.Millisecond)
				_, _ = theirs.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
			}()
			return ours, nil
		}
		if err := HTTP(fakeNet{"tcp4 10.201.0.2:8080": slow}.dial, eth0, "/")(t.Context(), time.Second); err != nil {
			t.Errorf("probe = %v, want healthy", err)
		}
	})
}

// held is a connection whose reader is not scheduled until the response has arrived and
// the deadline has passed.
type held struct {
	*net.TCPConn
	late *bool
}

func (h held) Read(p []byte) (int, error) {
	if !*h.late {
		*h.late = true
		if err := h.answered(); err != nil {
			return 0, err
		}
		if err := h.SetDeadline(time.Unix(1, 0)); err != nil {
			return 0, err
		}
	}
	return h.TCPConn.Read(p)
}

// answered waits until bytes can be read, and does not read them.
func (h held) answered() error {
	raw, err := h.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return n > 0 || err != syscall.EAGAIN
	})
}

// A response that arrived in time counts as in time, even if dewd reads it late.
func TestAnswerReadLate(t *testing.T) {
	l := testkit.Listen(t)
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: testkit.Patience}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	late := false
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return held{c.(*net.TCPConn), &late}, nil
	}
	err := HTTP(dial, netip.MustParseAddrPort(l.Addr().String()), "/")(t.Context(), testkit.Patience)
	if want := "http check failed: GET / answered 404, want 200"; err == nil || err.Error() != want || !late {
		t.Errorf("probe = %v, late = %v, want %q", err, late, want)
	}
}
