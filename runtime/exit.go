package runtime

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Cause says why a process ended.
type Cause string

// The causes of an Exit.
const (
	CauseExited        Cause = "exited"         // by itself, or by a signal from somebody else
	CauseOutOfMemory   Cause = "out_of_memory"  // the kernel killed in its leaf
	CauseUnhealthy     Cause = "unhealthy"      // its health check failed
	CauseStartTimeout  Cause = "start_timeout"  // it was not healthy in time
	CauseStartFailed   Cause = "start_failed"   // it never ran
	CausePeerExited    Cause = "peer_exited"    // another process of the instance ended first
	CauseCaptureFailed Cause = "capture_failed" // its output could no longer be taken
	CauseInitExited    Cause = "init_exited"    // the container's own first process ended
	CauseRuntimeLost   Cause = "runtime_lost"   // its shim is gone, and its status with it
)

// Exit is one process that ended.
type Exit struct {
	Exec   string    `json:"exec"`           // MainExec or SidecarExec(n)
	Name   string    `json:"name,omitempty"` // of the sidecar
	Source string    `json:"source"`         // "APP/PROC/WEB/SIDECAR/CONFIG SERVER"
	Code   int       `json:"code"`           // 128+signal when killed; -1 when it is lost
	OOM    bool      `json:"oom,omitempty"`  // in its own leaf, nobody else's
	Cause  Cause     `json:"cause"`
	Detail string    `json:"detail,omitempty"` // for causes that need a sentence
	At     time.Time `json:"at"`
	Exact  bool      `json:"exact,omitempty"` // At is the kernel's time, not the one of a later report
	Memory Memory    `json:"memory"`
}

// Memory is what a leaf used at its end, in bytes. Limit 0: only the
// container's limit bounded it.
type Memory struct {
	Limit int64 `json:"limit"`
	Peak  int64 `json:"peak"`
}

// Order says how sure the order of the exits in a record is.
type Order string

// The orders of a record; the empty one is sure.
const (
	OrderTogether Order = "together" // several ended too close to each other for the clocks
	OrderLate     Order = "late"     // an earlier exit became known only after the record was written
)

// clockError is how far the kernel's times of two deaths can be off.
const clockError = 200 * time.Microsecond

// FirstExit chooses the exit that names the crash: the smallest time. Those that are
// closer to it than together count as one moment, and then a leaf where the
// kernel killed goes before one without. Among the rest the kernel's own times
// decide where all have one, otherwise a sidecar goes before main. When the
// container's own first process ended, it took all others along and their times
// mean nothing: it goes before everything. The exit that names the crash has the
// time of the whole moment, so that no follower is earlier.
func FirstExit(exits []Exit, together time.Duration) (Exit, Order) {
	earliest := earliestOf(exits)
	e, order := firstOf(exits, earliest, together)
	e.At = earliest
	return e, order
}

func firstOf(exits []Exit, earliest time.Time, together time.Duration) (Exit, Order) {
	if inits := only(exits, func(e Exit) bool { return e.Cause == CauseInitExited }); len(inits) > 0 {
		return mainOf(inits), ""
	}
	near := only(exits, func(e Exit) bool { return e.At.Sub(earliest) < together })
	known := only(near, func(e Exit) bool { return e.Cause != CauseRuntimeLost })
	switch {
	case len(known) == 0: // no process is to blame, the container is
		return mainOf(near), ""
	case len(near) == 1:
		return known[0], ""
	}
	unsure := only(known, func(e Exit) bool { return !e.Exact || e.OOM })
	if len(unsure) == 0 {
		from := earliestOf(known)
		known = only(known, func(e Exit) bool { return e.At.Sub(from) <= clockError })
	}
	return slices.MinFunc(known, compareExits), OrderTogether
}

func earliestOf(exits []Exit) time.Time {
	return slices.MinFunc(exits, func(a, b Exit) int { return a.At.Compare(b.At) }).At
}

// mainOf is the exit that stands for the whole container: main's where it is
// there.
func mainOf(exits []Exit) Exit {
	return slices.MinFunc(exits, func(a, b Exit) int {
		return cmp.Or(-compareBool(a.Exec == MainExec, b.Exec == MainExec), cmp.Compare(a.Exec, b.Exec))
	})
}

// compareExits orders exits of one moment. It ends with the exec ids, so that
// the answer does not depend on who was reported first.
func compareExits(a, b Exit) int {
	return cmp.Or(
		-compareBool(a.OOM, b.OOM),
		compareBool(a.Exec == MainExec, b.Exec == MainExec),
		a.At.Compare(b.At),
		cmp.Compare(a.Exec, b.Exec),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func only(exits []Exit, keep func(Exit) bool) []Exit {
	var out []Exit
	for _, e := range exits {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// Exit codes of a shell whose command could not run.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// ClassifyExit says what an exit of a starting instance means: a shell's "not found"
// is a start that failed, and the record says why in words.
func ClassifyExit(e Exit, phase Phase) Exit {
	if phase != PhaseStarting || e.Cause != CauseExited || e.OOM {
		return e
	}
	switch e.Code {
	case codeNotFound:
		e.Cause, e.Detail = CauseStartFailed, "the command was not found"
	case codeNotExecutable:
		e.Cause, e.Detail = CauseStartFailed, "the command cannot be executed"
	}
	return e
}

// Description is the sentence that names the process and how it ended, as the
// exit record carries it.
func (e Exit) Description() string {
	return e.Source + ": " + e.ending()
}

func (e Exit) ending() string {
	switch e.Cause {
	case CauseUnhealthy:
		return "Instance became unhealthy: " + e.Detail
	case CauseStartTimeout:
		return "Instance " + e.Detail
	case CauseInitExited:
		return "Container ended: " + cmp.Or(e.Detail, "its first process exited")
	case CauseRuntimeLost:
		return "Container lost: " + cmp.Or(e.Detail, "its shim is gone, and the exit status with it")
	case CauseCaptureFailed:
		return "Output could not be taken any more" + prefixed(": ", e.Detail)
	case CauseStartFailed:
		if e.Code < 0 {
			return "cannot start: " + e.Detail
		}
	}
	s := "Exited with status " + strconv.Itoa(e.Code)
	if e.OOM {
		s += " (out of memory)"
	}
	return s
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// Signal is the signal that probably ended the process, 0 for none. Only
// probably: a program that exits with 137 looks the same.
func (e Exit) Signal() int {
	if e.Code > 128 && e.Code < 128+65 {
		return e.Code - 128
	}
	return 0
}
