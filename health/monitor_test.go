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

// script returns the n-th error for the n-th check, repeats the last one, and records
// the times of the checks.
type script struct {
	answers []error
	began   time.Time
	asked   []time.Duration
}

func newScript(answers ...error) *script {
	return &script{answers: answers, began: time.Now()}
}

func (s *script) probe(context.Context, time.Duration) error {
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

// A start that never becomes healthy is checked for a minute: every 5 ms at first, then
// after a tenth of the time that has passed, and finally every two seconds.
func TestMonitorStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(errBroken)
		err := Monitor(t.Context(), s.probe, Config{Startup: true}, func() { t.Error("ready called") })
		if got, want := time.Since(s.began), DefaultStartTimeout; got != want {
			t.Errorf("gave up after %s, want %s", got, want)
		}
		const ms = time.Millisecond
		if first := every(0, 5*ms, 11); len(s.asked) > 95 || !slices.Equal(s.asked[:11], first) {
			t.Errorf("asked %d times, first at %v; want at most 95 times, first at %v", len(s.asked), s.asked[:min(11, len(s.asked))], first)
		}
		for i, at := range s.asked[1:] {
			last := s.asked[i]
			if want := min(max(last/10, 5*ms), 2*time.Second, time.Minute-last); at-last != want {
				t.Errorf("asked at %v and at %v, want %v later", last, at, want)
			}
		}
		sick, ok := errors.AsType[*Unhealthy](err)
		if !ok {
			t.Fatalf("error = %v, want a *Sick", err)
		}
		if want := (Unhealthy{Phase: Starting, Check: CheckPort, After: time.Minute, Err: errBroken}); *sick != want {
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

// After the first success the checks run every 30 seconds. After a failure the next one
// runs at once, and then every second; three failures in a row are enough.
func TestMonitorLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(errBroken, errBroken, nil, nil, nil, errBroken)
		var ready []time.Duration
		err := Monitor(t.Context(), s.probe, Config{Startup: true}, func() { ready = append(ready, time.Since(s.began)) })
		const up = 10 * time.Millisecond
		if !slices.Equal(ready, []time.Duration{up}) {
			t.Errorf("ready at %v, want %v", ready, up)
		}
		want := append(every(0, 5*time.Millisecond, 3), every(up+30*time.Second, 30*time.Second, 3)...)
		want = append(want, up+90*time.Second, up+91*time.Second)
		if !slices.Equal(s.asked, want) {
			t.Errorf("asked at %v, want %v", s.asked, want)
		}
		sick, ok := errors.AsType[*Unhealthy](err)
		if !ok || sick.Phase != Running || sick.Check != CheckPort {
			t.Fatalf("error = %#v, want a *Sick of the running phase", err)
		}
		if got, want := sick.Error(), "port check failed: broken"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
	})
}

// The test checks how many failures in a row are enough, and the times between them.
func TestMonitorFailuresInARow(t *testing.T) {
	const sec = time.Second
	lost := &Unchecked{Check: CheckPort, Reason: "no turn"}
	for _, tt := range []struct {
		name     string
		failures int
		answers  []error
		want     []time.Duration
	}{
		{"as on the platform", 1, []error{errBroken}, []time.Duration{30 * sec}},
		{"two", 2, []error{errBroken}, []time.Duration{30 * sec, 30 * sec}},
		{"the default", 0, []error{errBroken}, []time.Duration{30 * sec, 30 * sec, 31 * sec}},
		{"five", 5, []error{errBroken}, []time.Duration{30 * sec, 30 * sec, 31 * sec, 32 * sec, 33 * sec}},
		{
			"a success in between starts over", 0,
			[]error{errBroken, nil, errBroken, errBroken, nil, errBroken},
			[]time.Duration{30 * sec, 30 * sec, 60 * sec, 60 * sec, 61 * sec, 91 * sec, 91 * sec, 92 * sec},
		},
		{
			"what could not be checked counts neither way", 0,
			[]error{lost, errBroken, lost, lost, errBroken, lost, errBroken},
			[]time.Duration{30 * sec, 31 * sec, 31 * sec, 32 * sec, 33 * sec, 34 * sec, 35 * sec},
		},
		{"nor where one failure is enough", 1, []error{lost, lost, errBroken}, []time.Duration{30 * sec, 31 * sec, 32 * sec}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(tt.answers...)
				var told []error
				c := Config{Failures: tt.failures, Checked: func(err error) { told = append(told, err) }}
				err := Monitor(t.Context(), s.probe, c, func() {})
				if sick, ok := errors.AsType[*Unhealthy](err); !ok || !errors.Is(sick, errBroken) {
					t.Errorf("error = %v, want a *Sick", err)
				}
				if !slices.Equal(s.asked, tt.want) {
					t.Errorf("asked at %v, want %v", s.asked, tt.want)
				}
				if len(told) != len(s.asked) || !slices.Equal(told[:len(tt.answers)], tt.answers) {
					t.Errorf("told of %v, want %v and the last one again", told, tt.answers)
				}
			})
		})
	}
}

// A hung app is found within its interval, 5 s and the timeouts of the checks.
func TestMonitorFindsHungApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := HTTP(fakeNet{"tcp4 10.201.0.2:8080": says("")}.dial, eth0, "/")
		err := Monitor(t.Context(), p, Config{}, func() {})
		limit := DefaultInterval + 5*time.Second + DefaultFailures*DefaultTimeout
		if took := time.Since(began); took > limit {
			t.Errorf("found after %s, want at most %s", took, limit)
		}
		if want := "http check failed: GET / did not answer within 1s"; err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
	})
}

// The checks of adopted instances start at different times.
func TestMonitorTakesOverRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(nil, errBroken)
		ready := time.Duration(-1)
		c := Config{Interval: 5 * time.Second, First: 2 * time.Second, Failures: 1}
		err := Monitor(t.Context(), s.probe, c, func() { ready = time.Since(s.began) })
		if ready != 0 {
			t.Errorf("ready at %s, want at once", ready)
		}
		if want := every(2*time.Second, 5*time.Second, 2); !slices.Equal(s.asked, want) {
			t.Errorf("asked at %v, want %v", s.asked, want)
		}
		if sick, ok := errors.AsType[*Unhealthy](err); !ok || sick.Phase != Running {
			t.Errorf("error = %v, want a *Sick of the running phase", err)
		}
	})
}

// A check that hangs is aborted after its timeout. The last one of a start begins when
// the time limit of the start has passed.
func TestMonitorHangingProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := Port(fakeNet{"tcp4 10.201.0.2:8080": hangs}.dial, eth0)
		c := Config{Startup: true, StartTimeout: 5 * time.Second, Timeout: 4 * time.Second, StartInterval: 500 * time.Millisecond}
		err := Monitor(t.Context(), p, c, func() { t.Error("ready called") })
		if got := time.Since(began); got < 5*time.Second || got > 5*time.Second+2*c.Timeout {
			t.Errorf("gave up after %s, want soon after 5s", got)
		}
		want := "not healthy within 5s of its start: port check failed: 10.201.0.2:8080 did not answer within 4s"
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
	})
}

// A start whose checks could not run has not failed. The first check that runs decides,
// even if the time limit of the start has passed.
func TestMonitorStartThatNobodyCouldCheck(t *testing.T) {
	lost := &Unchecked{Check: CheckPort, Reason: "no turn"}
	for _, last := range []error{nil, errBroken} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			seen := time.Duration(0)
			p := func(context.Context, time.Duration) error {
				seen = time.Since(began)
				if seen < 3*time.Minute {
					return lost
				}
				return last
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ready := false
			err := Monitor(ctx, p, Config{Startup: true}, func() { ready = true; cancel() })
			if _, sick := errors.AsType[*Unhealthy](err); sick != (last != nil) || ready != (last == nil) {
				t.Errorf("error = %v, ready = %v after %v", err, ready, last)
			}
			if seen < 3*time.Minute {
				t.Errorf("decided after %s, want by a check that could be run", seen)
			}
		})
	}
}

// A cancelled context never makes an instance unhealthy, in any phase.
func TestMonitorStops(t *testing.T) {
	slow := func(ctx context.Context, _ time.Duration) error {
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
				time.AfterFunc(30*time.Second+time.Millisecond, cancel) // every check of live starts at 30 s
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

// A real port probe uses a dialer that connects after a while and then fails.
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
		if ready < 3*time.Second || ready > 3300*time.Millisecond {
			t.Errorf("ready at %s, want at most a tenth after 3s", ready)
		}
		if got, want := time.Since(began), ready+61*time.Second; got != want {
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

// Readiness is withdrawn and restored. Nothing is reported if it stays the same or
// could not be checked.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := &Unchecked{Check: CheckPort, Reason: "no turn"}
		s := newScript(errBroken, nil, lost, nil, errBroken, lost, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		var got []change
		Watch(ctx, s.probe, Config{}, func(ready bool, err error) {
			got = append(got, change{time.Since(s.began), ready, err})
		})
		want := []change{
			{5 * time.Millisecond, true, nil},
			{62005 * time.Millisecond, false, errBroken},
			{64010 * time.Millisecond, true, nil}, // the check before could not run
		}
		if !slices.Equal(got, want) {
			t.Errorf("changes = %v, want %v", got, want)
		}
		if got := time.Since(s.began); got != 70*time.Second {
			t.Errorf("Watch returned after %s, want 70s", got)
		}
	})
}

// Cancelling ctx aborts a check, which must not withdraw the route.
func TestWatchEndIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		p := func(context.Context, time.Duration) error {
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
