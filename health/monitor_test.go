package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = &Failure{Check: CheckPort, Reason: "broken"}

// script answers the n-th question with the n-th error, the last one for ever, and
// notes when it was asked.
type script struct {
	answers []error
	began   time.Time
	asked   []time.Duration
}

func newScript(answers ...error) *script {
	return &script{answers: answers, began: time.Now()}
}

func (s *script) probe(context.Context) error {
	s.asked = append(s.asked, time.Since(s.began))
	return s.answers[min(len(s.asked), len(s.answers))-1]
}

func every(first, step time.Duration, n int) []time.Duration {
	var ds []time.Duration
	for i := range n {
		ds = append(ds, first+time.Duration(i)*step)
	}
	return ds
}

// quick are the first questions: most apps are up in a moment.
func quick() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{0, 25 * ms, 75 * ms, 175 * ms, 375 * ms, 775 * ms, 1575 * ms}
}

// A start that never becomes healthy is asked about quickly, then every two
// seconds, for a minute.
func TestMonitorStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(errBroken)
		err := Monitor(t.Context(), s.probe, Config{Startup: true}, func() { t.Error("ready called") })
		if got, want := time.Since(s.began), DefaultStartTimeout; got != want {
			t.Errorf("gave up after %s, want %s", got, want)
		}
		if want := append(quick(), every(3175*time.Millisecond, 2*time.Second, 29)...); !slices.Equal(s.asked, want) {
			t.Errorf("asked at %v, want %v", s.asked, want)
		}
		sick, ok := errors.AsType[*Sick](err)
		if !ok {
			t.Fatalf("error = %v, want a *Sick", err)
		}
		if want := (Sick{Phase: Starting, Check: CheckPort, After: time.Minute, Err: errBroken}); *sick != want {
			t.Errorf("sick = %+v, want %+v", *sick, want)
		}
		if !errors.Is(err, errBroken) {
			t.Errorf("%v does not unwrap to the probe's error", err)
		}
		if got, want := sick.String(), "not healthy within 1m0s of its start: port check failed: broken"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
	})
}

// After the first success the questions come every 30 seconds, and one failure is
// enough; a failure in between starts is not.
func TestMonitorLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(errBroken, errBroken, nil, nil, nil, errBroken)
		var ready []time.Duration
		err := Monitor(t.Context(), s.probe, Config{Startup: true}, func() { ready = append(ready, time.Since(s.began)) })
		if want := quick()[2:3]; !slices.Equal(ready, want) {
			t.Errorf("ready at %v, want %v", ready, want)
		}
		want := append(quick()[:3], every(quick()[2]+30*time.Second, 30*time.Second, 3)...)
		if !slices.Equal(s.asked, want) {
			t.Errorf("asked at %v, want %v", s.asked, want)
		}
		sick, ok := errors.AsType[*Sick](err)
		if !ok || sick.Phase != Running || sick.Check != CheckPort {
			t.Fatalf("error = %#v, want a *Sick of the running phase", err)
		}
		if got, want := sick.Error(), "port check failed: broken"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
	})
}

func TestMonitorTakesOverRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(nil, errBroken)
		ready := time.Duration(-1)
		err := Monitor(t.Context(), s.probe, Config{Interval: 5 * time.Second}, func() { ready = time.Since(s.began) })
		if ready != 0 {
			t.Errorf("ready at %s, want at once", ready)
		}
		if want := every(5*time.Second, 5*time.Second, 2); !slices.Equal(s.asked, want) {
			t.Errorf("asked at %v, want %v", s.asked, want)
		}
		if sick, ok := errors.AsType[*Sick](err); !ok || sick.Phase != Running {
			t.Errorf("error = %v, want a *Sick of the running phase", err)
		}
	})
}

// A question that hangs is given up after its timeout, also when less than that is
// left of the start; the sentence of the last whole question is kept.
func TestMonitorHangingProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p := Port(hang, netip.MustParseAddrPort("10.201.0.2:8080"))
		c := Config{Startup: true, StartTimeout: 5 * time.Second, Timeout: 4 * time.Second, StartInterval: 500 * time.Millisecond}
		err := Monitor(t.Context(), p, c, func() { t.Error("ready called") })
		if got := time.Since(began); got != 5*time.Second {
			t.Errorf("gave up after %s, want 5s", got)
		}
		want := "not healthy within 5s of its start: port check failed: 10.201.0.2:8080 did not answer within 4s"
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
	})
}

// The end of ctx is never a sickness, whichever phase it meets.
func TestMonitorLetsGo(t *testing.T) {
	slow := func(ctx context.Context) error {
		<-ctx.Done()
		return errBroken
	}
	tests := []struct {
		name    string
		probe   Probe
		startup bool
		ready   int
	}{
		{"between two questions of the start", newScript(errBroken).probe, true, 0},
		{"during a question of the start", slow, true, 0},
		{"between two questions of the life", newScript(nil).probe, true, 1},
		{"during a question of the life", slow, false, 1},
		{"without a probe", nil, true, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*time.Second+time.Millisecond, cancel)
				ready := 0
				c := Config{Startup: tt.startup, Timeout: time.Minute}
				err := Monitor(ctx, tt.probe, c, func() { ready++ })
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error = %v, want context canceled", err)
				}
				if ready != tt.ready {
					t.Errorf("ready called %d times, want %d", ready, tt.ready)
				}
			})
		})
	}
}

// A real port probe through a dialer that answers later and then no longer.
func TestMonitorWithDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		dial := func(context.Context, string, string) (net.Conn, error) {
			up := time.Since(began)
			if up < 3*time.Second || up > time.Minute {
				return nil, syscall.ECONNREFUSED
			}
			ours, theirs := net.Pipe()
			return ours, theirs.Close()
		}
		ready := time.Duration(-1)
		p := Port(dial, netip.MustParseAddrPort("10.201.0.2:8080"))
		err := Monitor(t.Context(), p, Config{Startup: true}, func() { ready = time.Since(began) })
		if want := 3175 * time.Millisecond; ready != want {
			t.Errorf("ready at %s, want %s", ready, want)
		}
		if got, want := time.Since(began), 63175*time.Millisecond; got != want {
			t.Errorf("sick at %s, want %s", got, want)
		}
		if want := "port check failed: connection to 10.201.0.2:8080 refused"; err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
	})
}

type change struct {
	at    time.Duration
	ready bool
	err   error
}

// Readiness is withdrawn and restored, and nothing is said when it stays the same.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(errBroken, nil, nil, errBroken, errBroken, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		var got []change
		Watch(ctx, s.probe, Config{}, func(ready bool, err error) {
			got = append(got, change{time.Since(s.began), ready, err})
		})
		want := []change{
			{2 * time.Second, true, nil},
			{62 * time.Second, false, errBroken},
			{66 * time.Second, true, nil},
		}
		if !slices.Equal(got, want) {
			t.Errorf("changes = %v, want %v", got, want)
		}
		if got := time.Since(s.began); got != 70*time.Second {
			t.Errorf("Watch returned after %s, want 70s", got)
		}
	})
}

// The end of ctx cuts off an answer; that must not withdraw the route.
func TestWatchEndIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		p := func(ctx context.Context) error {
			if calls == 0 {
				return nil
			}
			cancel()
			return errBroken
		}
		Watch(ctx, p, Config{}, func(bool, error) { calls++ })
		if calls != 1 {
			t.Errorf("changed called %d times, want 1", calls)
		}
	})
}

func TestWatchWithoutProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []change
		Watch(ctx, nil, Config{}, func(ready bool, err error) { got = append(got, change{ready: ready, err: err}) })
		if want := []change{{ready: true}}; !slices.Equal(got, want) {
			t.Errorf("changes = %v, want %v", got, want)
		}
	})
}
