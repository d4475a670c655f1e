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

// PartUsage is the current usage of the process of an instance, or of one of its
// sidecars.
type PartUsage struct {
	Sidecar string // empty: the process itself
	Memory  int64  // bytes, without memory that the kernel can reclaim
	Limit   int64  // bytes; 0: only the limit of the whole instance
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
