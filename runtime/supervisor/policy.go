package supervisor

import (
	"time"

	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/runtime"
)

// Policy holds the numbers of starting, ending and restarting. A zero is the
// default.
type Policy struct {
	ImmediateRestarts int           // restarts without a wait; 3
	FirstBackoff      time.Duration // the wait after them, doubled each time; 30 s
	MaxBackoff        time.Duration // where doubling ends; 16 min
	MaxCrashes        int           // the crash after which the slot is given up; 200
	HealthyReset      time.Duration // in RUNNING, then the count starts over; 5 min
	HealthFailures    int           // liveness checks in a row that must fail; 3
	Together          time.Duration // exits closer than this have no order; 5 ms
	KillDelay         time.Duration // between SIGTERM and SIGKILL, and after it; 10 s
	ReapLimit         time.Duration // how long a record waits for last lines; 2 s
	StartLimit        time.Duration // for one Engine.Start; 5 min
	CallLimit         time.Duration // for any other call to the engine; 30 s
	FirstRetry        time.Duration // after the container service did not answer; 1 s
	MaxRetry          time.Duration // where its doubling ends; 30 s
	DrainLimit        time.Duration // for requests under way at an instance that is replaced; 10 s
	CancelLimit       time.Duration // for old instances to come back before the new ones end; 3 min
	CrashRecords      int           // exit records that a slot keeps; 100
}

// The defaults of Policy: as on the platform where it has the number.
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

// WithDefaults fills in what is zero.
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

// backoff is the wait between the crashes-th crash in a row and the next start.
func (p Policy) backoff(crashes int) time.Duration {
	return doubled(p.FirstBackoff, p.MaxBackoff, crashes-p.ImmediateRestarts)
}

// givesUp tells whether nothing is started any more after so many crashes.
func (p Policy) givesUp(crashes int) bool { return crashes >= p.MaxCrashes }

// retry is the wait after the n-th time in a row, from 1, that the container
// service could not do its part.
func (p Policy) retry(n int) time.Duration { return doubled(p.FirstRetry, p.MaxRetry, n) }

// doubled is first for n = 1, twice as much for each n more, at most limit; 0
// below 1.
func doubled(first, limit time.Duration, n int) time.Duration {
	if n <= 0 {
		return 0
	}
	// Shifted one by one: a single shift by a large n runs over and comes out short.
	d := min(first, limit)
	for ; n > 1 && d < limit; n-- {
		d = min(2*d, limit)
	}
	return d
}
