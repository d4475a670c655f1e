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

// Config says how often and how patiently to ask. Zero durations are the defaults.
type Config struct {
	StartTimeout  time.Duration // how long a start may take
	StartInterval time.Duration // between two questions until the first success, after some quicker ones
	Interval      time.Duration // between two questions after it
	Timeout       time.Duration // for one answer
	// Startup says that the instance has just been started. Without it Monitor takes
	// the instance over as healthy and goes straight to the liveness checks, as is
	// right for one that ran before this daemon did.
	Startup bool
	// Ready says that Watch takes the instance over as ready.
	Ready bool
}

// Phase is the part of its life in which an instance was found sick.
type Phase string

// The phases of Sick.
const (
	Starting Phase = "starting" // it was never healthy
	Running  Phase = "running"  // it had been healthy before
)

// Sick says why an instance must end. Its text completes the sentence "Instance
// became unhealthy: …".
type Sick struct {
	Phase Phase
	Check string        // "port" or "http"; empty when the probe did not say
	After time.Duration // what the start had been given; 0 when Running
	Err   error         // what the last probe said
}

// String is the text without the introduction.
func (s *Sick) String() string {
	if s.Phase == Starting {
		return fmt.Sprintf("not healthy within %s of its start: %v", s.After, s.Err)
	}
	return s.Err.Error()
}

// Error is the same text as String.
func (s *Sick) Error() string { return s.String() }

// Unwrap gives what the last probe said.
func (s *Sick) Unwrap() error { return s.Err }

// Monitor asks until the instance is sick and returns a *Sick, or until ctx ends
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

// Watch asks for readiness until ctx ends. The instance counts as not ready at
// first, unless c says otherwise; changed is called whenever that turns, with the reason when it is no
// longer ready. While it is not ready the question is asked every StartInterval,
// afterwards every Interval. Without a probe the instance is ready at once.
func Watch(ctx context.Context, p Probe, c Config, changed func(ready bool, err error)) {
	c = c.withDefaults()
	if p == nil {
		changed(true, nil)
		<-ctx.Done()
		return
	}
	ready := c.Ready
	for {
		err := ask(ctx, p, c.Timeout)
		if ctx.Err() != nil {
			return // the answer was cut off, it means nothing
		}
		if !unchecked(err) && ready != (err == nil) {
			ready = err == nil
			changed(ready, err)
		}
		wait := c.StartInterval
		if ready {
			wait = c.Interval
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// start asks until the first success.
func start(ctx context.Context, p Probe, c Config) error {
	deadline := time.Now().Add(c.StartTimeout)
	var last error
	for wait := firstInterval; ; wait = min(2*wait, c.StartInterval) {
		left := time.Until(deadline)
		if left <= 0 {
			return sick(Starting, c.StartTimeout, last)
		}
		err := ask(ctx, p, min(c.Timeout, left))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		// An answer that did not come because the question was cut short says less
		// than the one before it.
		if last == nil || left >= c.Timeout || !timedOut(err) {
			last = err
		}
		if err := pause(ctx, min(wait, c.StartInterval, time.Until(deadline))); err != nil {
			return err
		}
	}
}

// live asks until the first failure: as on the platform, one is enough. A check that
// could not be run counts neither way.
func live(ctx context.Context, p Probe, c Config) error {
	for {
		if err := pause(ctx, c.Interval); err != nil {
			return err
		}
		err := ask(ctx, p, c.Timeout)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !unchecked(err) {
			return sick(Running, 0, err)
		}
	}
}

func ask(ctx context.Context, p Probe, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p(ctx)
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

func sick(phase Phase, after time.Duration, err error) *Sick {
	s := &Sick{Phase: phase, After: after, Err: err}
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
	return c
}

func positive(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
