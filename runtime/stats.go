package runtime

import (
	"time"

	"github.com/dewrun/dew/verdict"
)

// Stats counts events since the supervisor was created.
type Stats struct {
	Starts      uint64                   // instances that were started
	Crashes     map[Cause]uint64         // by the cause of the first exit
	Verdicts    map[verdict.Class]uint64 // crashes, by the class of the explanation
	Restarts    map[Cause]uint64         // starts after a crash, by its cause
	Unavailable uint64                   // starts that failed because the container service was not available
	Panics      uint64                   // panics of slots
	Spares      int                      // instances that are prepared now while the ones before them run

	Checks map[Outcome]uint64 // health and readiness checks, by outcome
}

// Outcome is the result of a check.
type Outcome string

// The outcomes of a check.
const (
	CheckPassed    Outcome = "passed"
	CheckFailed    Outcome = "failed"
	CheckUnchecked Outcome = "unchecked" // it could not be run
)

// Usage is the current resource usage of an instance.
type Usage struct {
	CPU      float64 // cores, since the previous request
	Entitled float64 // cores that are guaranteed; 0: unknown
	Memory   int64   // bytes, without memory that the kernel can reclaim
	Disk     int64   // bytes of the writable layer
	LogRate  int64   // bytes of output per second, since the previous request
	Parts    []PartUsage
}

// PartUsage is the usage of the process of an instance, or of one of its sidecars.
// Totals count since the start.
type PartUsage struct {
	Sidecar   string        // empty: the process itself
	Memory    int64         // bytes, without memory that the kernel can reclaim
	Limit     int64         // bytes; 0: only the limit of the whole instance
	Cache     int64         // bytes of files that the kernel can reclaim
	Peak      int64         // bytes, the most since the start, including files; 0: unknown
	CPU       time.Duration // total CPU time
	Periods   int64         // total periods of a CPU limit
	Throttled int64         // total periods in which the CPU limit was reached
	Waited    time.Duration // total time without CPU because of a CPU limit
	PIDs      int           // processes and threads
	Anon      int64         // bytes of memory that no file backs
	File      int64         // bytes of cached files
	Kernel    int64         // bytes that the kernel uses for it; 0: unknown
}

// Consumption is the total resource usage of an instance so far.
type Consumption struct {
	CPU      time.Duration
	Entitled float64 // cores that are guaranteed, according to its memory; 0: unknown
	Memory   int64
	Disk     int64
	Printed  int64 // bytes
	Parts    []PartUsage
}

// Reading is a Consumption with the time at which it was read.
type Reading struct {
	At time.Time
	Consumption
}

// Since returns the usage between two readings of an instance. It has no rates if the
// counters went backwards, because then they belong to another instance.
func (r Reading) Since(before Reading) Usage {
	u := Usage{Entitled: r.Entitled, Memory: r.Memory, Disk: r.Disk, Parts: r.Parts}
	d := r.At.Sub(before.At)
	if d <= 0 || r.CPU < before.CPU || r.Printed < before.Printed {
		return u
	}
	u.CPU = float64(r.CPU-before.CPU) / float64(d)
	u.LogRate = int64(float64(r.Printed-before.Printed) / d.Seconds())
	return u
}

// Traffic counts the requests that an instance answered since it started.
type Traffic struct {
	Requests uint64
	Time     time.Duration // sum of the times to the header of the response
}
