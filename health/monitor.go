package health

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An app that is starting, or not ready, is checked again after a tenth of the time that
// it has needed so far, but at least firstInterval and at most Config.StartInterval. So
// users wait little longer than the app needs.
const (
	firstInterval = 5 * time.Millisecond
	startFraction = 10
)

// The defaults of Config, as on Cloud Foundry.
const (
	DefaultStartTimeout  = 60 * time.Second
	DefaultStartInterval = 2 * time.Second
	DefaultInterval      = 30 * time.Second
	DefaultTimeout       = 1 * time.Second
)

// DefaultFailures is how many liveness checks in a row must fail. On Cloud Foundry one
// is enough.
const DefaultFailures = 3

// recheck is the wait before a decisive check: after a second failure in a row, and
// after a check that could not run.
const recheck = time.Second

// Config has the intervals and limits of checks. Zeros are the defaults.
type Config struct {
	StartTimeout  time.Duration // the time that a start can take
	StartInterval time.Duration // at most, between two checks while the app is starting or not ready
	Interval      time.Duration // between two checks after that
	Timeout       time.Duration // for one response
	Failures      int           // liveness checks in a row that must fail
	// First is the wait before the first liveness check; 0 means Interval. It spreads
	// the checks of instances that were started or adopted together.
	First time.Duration
	// Startup says that the instance has just been started. Without it, Monitor assumes
	// a healthy instance and starts with the liveness checks. That is right for an
	// instance that ran before this daemon.
	Startup bool
	// Ready says that Watch assumes a ready instance.
	Ready bool
	// Checked is called after every check with its error: nil, a *Failure or an
	// *Unchecked. It can be nil.
	Checked func(err error)
}

// Phase is the phase in which an instance was found unhealthy.
type Phase string

// The phases of Unhealthy.
const (
	Starting Phase = "starting" // it was never healthy
	Running  Phase = "running"  // it had been healthy before
)

// Unhealthy is the reason why an instance must be stopped. Its text completes the
// sentence "Instance became unhealthy: …".
type Unhealthy struct {
	Phase Phase
	Check string        // "port" or "http" (empty if the probe did not report it)
	After time.Duration // the time limit of the start (0 when Running)
	Err   error         // the error of the last probe
}

// String returns the text without the introduction.
func (s *Unhealthy) String() string {
	if s.Phase == Starting {
		return fmt.Sprintf("not healthy within %s of its start: %v", s.After, s.Err)
	}
	return s.Err.Error()
}

// Error returns the same text as String.
func (s *Unhealthy) Error() string { return s.String() }

// Unwrap returns the error of the last probe.
func (s *Unhealthy) Unwrap() error { return s.Err }

// Monitor checks until the instance is unhealthy and returns an *Unhealthy, or until
// ctx is cancelled and returns its error. It calls ready once, when the instance is
// healthy. Without a probe, the instance is healthy as long as its processes run: ready
// is called at once, and Monitor waits for ctx.
func Monitor(ctx context.Context, p Probe, c Config, ready func()) error {
	c = c.withDefaults()
	if p != nil && c.Startup {
		if err := start(ctx, p, c); err != nil {
			return err
		}
	}
	ready()
	if p == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return live(ctx, p, c)
}

// Watch checks readiness until ctx is cancelled. The instance is not ready at first,
// unless c.Ready is set. It calls changed whenever that changes, with the reason if the
// instance is no longer ready. While the instance is not ready, the checks are at most
// StartInterval apart, and otherwise Interval. A check that could not run changes nothing.
// Without a probe the instance is ready at once.
func Watch(ctx context.Context, p Probe, c Config, changed func(ready bool, err error)) {
	c = c.withDefaults()
	if p == nil {
		changed(true, nil)
		<-ctx.Done()
		return
	}
	ready, since := c.Ready, time.Now()
	for {
		err := c.runProbe(ctx, p)
		if ctx.Err() != nil {
			return // the check was cancelled, so its result means nothing
		}
		known := !unchecked(err)
		if known && ready != (err == nil) {
			ready, since = err == nil, time.Now()
			changed(ready, err)
		}
		wait := c.StartInterval
		switch {
		case known && ready:
			wait = c.Interval
		case known:
			wait = c.soon(since)
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// start checks until the first success. The last check starts when the time limit of
// the start has passed. Only a check that could run ends the wait: if dewd was not
// scheduled, the app may have started.
func start(ctx context.Context, p Probe, c Config) error {
	began := time.Now()
	deadline := began.Add(c.StartTimeout)
	for {
		over := !time.Now().Before(deadline)
		err := c.runProbe(ctx, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case over && !unchecked(err):
			return unhealthy(Starting, c.StartTimeout, err)
		}
		next := c.soon(began)
		if left := time.Until(deadline); left > 0 {
			next = min(next, left)
		}
		if err := pause(ctx, next); err != nil {
			return err
		}
	}
}

// live checks until the instance is unhealthy, after enough failures in a row. After
// the first failure the next check starts at once: most apps that did not respond in
// time respond then. A check that could not run counts neither way.
func live(ctx context.Context, p Probe, c Config) error {
	failures, wait := 0, c.First
	for {
		if err := pause(ctx, wait); err != nil {
			return err
		}
		err := c.runProbe(ctx, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures, wait = 0, c.Interval
			continue
		case unchecked(err):
			wait = recheck
			continue
		}
		if failures++; failures >= c.Failures {
			return unhealthy(Running, 0, err)
		}
		if wait = recheck; failures == 1 {
			wait = 0
		}
	}
}

// soon returns the time until the next check of an app that has not passed one since began.
func (c Config) soon(began time.Time) time.Duration {
	return min(max(time.Since(began)/startFraction, firstInterval), c.StartInterval)
}

func (c Config) runProbe(ctx context.Context, p Probe) error {
	err := p(ctx, c.Timeout)
	if ctx.Err() == nil && c.Checked != nil {
		c.Checked(err)
	}
	return err
}

// unchecked reports whether err says nothing about the app.
func unchecked(err error) bool {
	_, ok := errors.AsType[*Unchecked](err)
	return ok
}

// pause waits for d. If ctx is cancelled first, it returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func unhealthy(phase Phase, after time.Duration, err error) *Unhealthy {
	s := &Unhealthy{Phase: phase, After: after, Err: err}
	if f, ok := errors.AsType[*Failure](err); ok {
		s.Check = f.Check
	}
	return s
}

func (c Config) withDefaults() Config {
	c.StartTimeout = positive(c.StartTimeout, DefaultStartTimeout)
	c.StartInterval = positive(c.StartInterval, DefaultStartInterval)
	c.Interval = positive(c.Interval, DefaultInterval)
	c.Timeout = positive(c.Timeout, DefaultTimeout)
	c.Failures = positive(c.Failures, DefaultFailures)
	c.First = positive(c.First, c.Interval)
	return c
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}
