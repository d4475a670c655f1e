package runtime

import "time"

// Stats counts what happened since the supervisor was made.
type Stats struct {
	Starts      uint64           // instances that were started
	Crashes     map[Cause]uint64 // by the cause of the first exit
	Restarts    map[Cause]uint64 // starts after a crash, by its cause
	Unavailable uint64           // starts that the container service could not try
	Panics      uint64           // of slots

	Checks map[Outcome]uint64 // health and readiness checks, by outcome
}

// Outcome is what a check found.
type Outcome string

// The outcomes of a check.
const (
	CheckPassed    Outcome = "passed"
	CheckFailed    Outcome = "failed"
	CheckUnchecked Outcome = "unchecked" // it could not be run
)

// Usage is what an instance takes now.
type Usage struct {
	CPU      float64 // cores, since the last time somebody asked
	Entitled float64 // cores that it may count on; 0: nobody knows
	Memory   int64   // bytes, without what the kernel can drop
	Disk     int64   // bytes of the writable layer
	LogRate  int64   // bytes a second that it prints, since the last time somebody asked
	Parts    []PartUsage
}

// PartUsage is what the process of an instance, or one of its sidecars, uses now.
type PartUsage struct {
	Sidecar string // empty: the process itself
	Memory  int64  // bytes, without what the kernel can drop
	Limit   int64  // bytes; 0: only the limit of the whole instance
}

// Consumption is what an instance has taken so far.
type Consumption struct {
	CPU      time.Duration
	Entitled float64 // cores that it may count on, by its memory; 0: nobody knows
	Memory   int64
	Disk     int64
	Printed  int64 // bytes
	Parts    []PartUsage
}
