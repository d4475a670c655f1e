package health

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// firstInterval is the first wait for an app that is not up yet. It doubles up to
// Config.StartInterval: most apps are up in a moment, and nobody likes to wait.
const firstInterval = 25 * time.Millisecond

// The defaults of Config, as on the platform.
const (
	DefaultStartTimeout  = 60 * time.Second
	DefaultStartInterval = 2 * time.Second
	DefaultInterval      = 30 * time.Second
	DefaultTimeout       = 1 * time.Second
)

// DefaultFailures is how many liveness checks in a row must fail. On the platform
// one is enough.
const DefaultFailures = 3

// recheck is the wait between two checks whose outcome decides: after a second
// failure in a row, and after a check that could not be run.
const recheck = time.Second

// Config says how often and how patiently to check. Zeros are the defaults.
type Config struct {
	StartTimeout  time.Duration // how long a start may take
	StartInterval time.Duration // between two checks until the first success, after some quicker ones
	Interval      time.Duration // between two checks after it
	Timeout       time.Duration // for one answer
	Failures      int           // liveness checks in a row that must fail
	// First is the wait before the first liveness check; Interval, when it is 0. It
	// spreads the checks of instances that were started or adopted together.
	First time.Duration
	// Startup says that the instance has just been started. Without it Monitor takes
	// the instance over as healthy and goes straight to the liveness checks, as is
	// right for one that ran before this daemon did.
	Startup bool
	// Ready says that Watch takes the instance over as ready.
	Ready bool
	// Checked is called after every check with its error: nil, a *Failure or an
	// *Unchecked. It may be nil.
	Checked func(err error)
}

// Phase is the part of its life in which an instance was found unhealthy.
type Phase string

// The phases of Unhealthy.
const (
	Starting Phase = "starting" // it was never healthy
	Running  Phase = "running"  // it had been healthy before
)

// Unhealthy says why an instance must end. Its text completes the sentence "Instance
// became unhealthy: …".
type Unhealthy struct {
	Phase Phase
	Check string        // "port" or "http"; empty when the probe did not say
	After time.Duration // what the start had been given; 0 when Running
	Err   error         // what the last probe said
}

// String is the text without the introduction.
func (s *Unhealthy) String() string {
	if s.Phase == Starting {
		return fmt.Sprintf("not healthy within %s of its start: %v", s.After, s.Err)
	}
	return s.Err.Error()
}

// Error is the same text as String.
func (s *Unhealthy) Error() string { return s.String() }

// Unwrap gives what the last probe said.
func (s *Unhealthy) Unwrap() error { return s.Err }

// Monitor checks until the instance is unhealthy and returns an *Unhealthy, or until ctx ends
// and returns its error. It calls ready once, when the instance is healthy. Without
// a probe the instance is healthy for as long as its processes live: ready is
// called at once and only ctx ends the wait.
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

// Watch checks readiness until ctx ends. The instance counts as not ready at first,
// unless c says otherwise; changed is called whenever that turns, with the reason
// when it is no longer ready. While it is not ready the check runs every
// StartInterval, afterwards every Interval. A check that could not be run changes
// nothing. Without a probe the instance is ready at once.
func Watch(ctx context.Context, p Probe, c Config, changed func(ready bool, err error)) {
	c = c.withDefaults()
	if p == nil {
		changed(true, nil)
		<-ctx.Done()
		return
	}
	ready := c.Ready
	for {
		err := c.ask(ctx, p)
		if ctx.Err() != nil {
			return // the answer was cut off, it means nothing
		}
		known := !unchecked(err)
		if known && ready != (err == nil) {
			ready = err == nil
			changed(ready, err)
		}
		wait := c.StartInterval
		if ready && known {
			wait = c.Interval
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// start checks until the first success. The last check begins when the time of the
// start is over, and only a check that could be run ends the wait: if dewd was not
// scheduled meanwhile, the app may be up.
func start(ctx context.Context, p Probe, c Config) error {
	deadline := time.Now().Add(c.StartTimeout)
	for wait := firstInterval; ; wait = min(2*wait, c.StartInterval) {
		over := !time.Now().Before(deadline)
		err := c.ask(ctx, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case over && !unchecked(err):
			return unhealthy(Starting, c.StartTimeout, err)
		}
		next := min(wait, c.StartInterval)
		if left := time.Until(deadline); left > 0 {
			next = min(next, left)
		}
		if err := pause(ctx, next); err != nil {
			return err
		}
	}
}

// live checks until so many failures in a row that the instance is unhealthy. After the
// first failure the next check begins at once: most apps that did not answer in time
// answer then. A check that could not be run counts neither way.
func live(ctx context.Context, p Probe, c Config) error {
	failures, wait := 0, c.First
	for {
		if err := pause(ctx, wait); err != nil {
			return err
		}
		err := c.ask(ctx, p)
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

func (c Config) ask(ctx context.Context, p Probe) error {
	err := p(ctx, c.Timeout)
	if ctx.Err() == nil && c.Checked != nil {
		c.Checked(err)
	}
	return err
}

// unchecked says that err tells nothing about the app.
func unchecked(err error) bool {
	_, ok := errors.AsType[*Unchecked](err)
	return ok
}

// pause waits for d, or for the end of ctx and then returns its error.
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
