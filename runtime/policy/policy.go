// Package policy has the limits for starts, stops and restarts of instances.
package policy

import (
	"time"

	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/runtime"
)

// Policy has the limits for starts, stops and restarts. Zero means the default.
type Policy struct {
	ImmediateRestarts int           // restarts without a delay (default 3)
	FirstBackoff      time.Duration // the delay after them, doubled each time (default 30 s)
	MaxBackoff        time.Duration // the largest delay (default 16 min)
	MaxCrashes        int           // the crash after which the slot is given up (default 200)
	HealthyReset      time.Duration // time in RUNNING after which the count starts over (default 5 min)
	HealthFailures    int           // failed liveness checks in a row that end the instance (default 3)
	Together          time.Duration // exits closer than this count as simultaneous (default 5 ms)
	KillDelay         time.Duration // between SIGTERM and SIGKILL, and after it (default 10 s)
	ReapLimit         time.Duration // how long a record waits for last lines (default 2 s)
	StartLimit        time.Duration // for one Engine.Start (default 5 min)
	CallLimit         time.Duration // for any other call to the engine (default 30 s)
	FirstRetry        time.Duration // after the container service did not answer (default 1 s)
	MaxRetry          time.Duration // the largest delay of the retries (default 30 s)
	DrainLimit        time.Duration // for active requests of an instance that is replaced (default 10 s)
	CancelLimit       time.Duration // for old instances to start again before the new ones stop (default 3 min)
	CrashRecords      int           // exit records per slot (default 100)
}

// The defaults of Policy. They are the same as on the platform if it has the setting.
const (
	defaultImmediateRestarts = 3
	defaultFirstBackoff      = 30 * time.Second
	defaultMaxBackoff        = 16 * time.Minute
	defaultMaxCrashes        = 200
	defaultHealthyReset      = 5 * time.Minute
	defaultTogether          = 5 * time.Millisecond
	defaultKillDelay         = 10 * time.Second
	defaultReapLimit         = 2 * time.Second
	defaultStartLimit        = 5 * time.Minute
	defaultCallLimit         = 30 * time.Second
	defaultFirstRetry        = time.Second
	defaultMaxRetry          = 30 * time.Second
	defaultDrainLimit        = 10 * time.Second
	defaultCancelLimit       = 3 * time.Minute
)

// WithDefaults replaces zero values by the defaults.
func (p Policy) WithDefaults() Policy {
	p.ImmediateRestarts = or(p.ImmediateRestarts, defaultImmediateRestarts)
	p.FirstBackoff = or(p.FirstBackoff, defaultFirstBackoff)
	p.MaxBackoff = or(p.MaxBackoff, defaultMaxBackoff)
	p.MaxCrashes = or(p.MaxCrashes, defaultMaxCrashes)
	p.HealthyReset = or(p.HealthyReset, defaultHealthyReset)
	p.HealthFailures = or(p.HealthFailures, health.DefaultFailures)
	p.Together = or(p.Together, defaultTogether)
	p.KillDelay = or(p.KillDelay, defaultKillDelay)
	p.ReapLimit = or(p.ReapLimit, defaultReapLimit)
	p.StartLimit = or(p.StartLimit, defaultStartLimit)
	p.CallLimit = or(p.CallLimit, defaultCallLimit)
	p.FirstRetry = or(p.FirstRetry, defaultFirstRetry)
	p.MaxRetry = or(p.MaxRetry, defaultMaxRetry)
	p.DrainLimit = or(p.DrainLimit, defaultDrainLimit)
	p.CancelLimit = or(p.CancelLimit, defaultCancelLimit)
	p.CrashRecords = or(p.CrashRecords, runtime.DefaultCrashRecords)
	return p
}

func or[T int | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// Backoff returns the delay between the given crash in a row and the next start.
func (p Policy) Backoff(crashes int) time.Duration {
	return doubled(p.FirstBackoff, p.MaxBackoff, crashes-p.ImmediateRestarts)
}

// GivesUp reports whether the slot is given up after that many crashes.
func (p Policy) GivesUp(crashes int) bool { return crashes >= p.MaxCrashes }

// Retry returns the delay after the n-th failure in a row, from 1, of the container
// service.
func (p Policy) Retry(n int) time.Duration { return doubled(p.FirstRetry, p.MaxRetry, n) }

// doubled returns first for n = 1 and twice as much for each further n, at most limit.
// It returns 0 for n below 1.
func doubled(first, limit time.Duration, n int) time.Duration {
	if n <= 0 {
		return 0
	}
	// Double step by step: a single shift by a large n would overflow.
	d := min(first, limit)
	for ; n > 1 && d < limit; n-- {
		d = min(2*d, limit)
	}
	return d
}
