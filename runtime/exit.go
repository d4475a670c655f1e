package runtime

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Cause is the reason why a process exited.
type Cause string

// The causes of an Exit.
const (
	CauseExited        Cause = "exited"         // by itself, or by a signal that did not come from dew
	CauseOutOfMemory   Cause = "out_of_memory"  // the kernel killed a process in its leaf
	CauseUnhealthy     Cause = "unhealthy"      // its health check failed
	CauseStartTimeout  Cause = "start_timeout"  // it was not healthy before the timeout
	CauseStartFailed   Cause = "start_failed"   // it never ran
	CausePeerExited    Cause = "peer_exited"    // another process of the instance exited first
	CauseStopTimeout   Cause = "stop_timeout"   // another process exited first, and this one did not exit after SIGTERM
	CauseCaptureFailed Cause = "capture_failed" // its output could no longer be captured
	CauseInitExited    Cause = "init_exited"    // the container's own first process exited
	CauseRuntimeLost   Cause = "runtime_lost"   // its shim is gone, and with it the exit status
	CauseDiskFull      Cause = "disk_full"      // the cluster stopped it because it used more than its disk limit
	CauseRemoved       Cause = "removed"        // the cluster removed its Pod for a reason outside the app
)

// Counts reports whether an exit with this cause is a crash of the app, which delays its
// next start.
func (c Cause) Counts() bool { return c != CauseRemoved }

// Exit describes one process that exited.
type Exit struct {
	Exec   string    `json:"exec"`           // MainExec or SidecarExec(n)
	Name   string    `json:"name,omitempty"` // name of the sidecar
	Source string    `json:"source"`         // "APP/PROC/WEB/SIDECAR/CONFIG SERVER"
	Code   int       `json:"code"`           // 128+signal when killed; -1 if unknown
	OOM    bool      `json:"oom,omitempty"`  // in its own leaf only
	Cause  Cause     `json:"cause"`
	Detail string    `json:"detail,omitempty"` // for causes that need an explanation
	At     time.Time `json:"at"`
	Exact  bool      `json:"exact,omitempty"` // At is the kernel's time, not that of a later report
	Memory Memory    `json:"memory"`

	Usage  *ExitUsage   `json:"usage,omitempty"`
	Check  *FailedCheck `json:"check,omitempty"`  // for CauseUnhealthy and CauseStartTimeout
	Signal *SentSignal  `json:"signal,omitempty"` // the signal that ended it, if its sender is known
}

// Memory is the memory usage of a leaf at its exit, in bytes. Limit 0 means that only
// the container's limit applied.
type Memory struct {
	Limit int64 `json:"limit"`
	Peak  int64 `json:"peak"`
}

// ExitUsage is what a process used. The memory, and the numbers of processes and open
// files, are from the last measurement before the exit, because a process has none
// after it.
type ExitUsage struct {
	CPU        time.Duration `json:"cpu"`                 // in total
	Throttled  time.Duration `json:"throttled,omitempty"` // in total, without CPU because of a CPU limit
	MeasuredAt time.Time     `json:"measured_at,omitzero"`
	Anon       int64         `json:"anon,omitempty"`   // bytes of memory that no file backs
	File       int64         `json:"file,omitempty"`   // bytes of cached files
	Kernel     int64         `json:"kernel,omitempty"` // bytes that the kernel used for it
	PIDs       int           `json:"pids,omitempty"`   // processes and threads
	Files      int           `json:"files,omitempty"`  // open files of its first process
	OOMKills   int64         `json:"oom_kills,omitempty"`
}

// Order says how certain the order of the exits in a record is.
type Order string

// The values of Order. The empty value means that the order is certain.
const (
	OrderTogether Order = "together" // several exited too close together for the clocks
	OrderLate     Order = "late"     // an earlier exit became known only after the record was written
)

// clockError is the largest error between the kernel's times of two exits.
const clockError = 200 * time.Microsecond

// FirstExit chooses the exit that names the crash: the earliest one. Exits that are
// closer to it than together count as simultaneous. Among these, a leaf with an OOM
// kill goes first. Otherwise the kernel's own times decide if all exits have one; if
// not, a sidecar goes before main. If the container's own first process exited, or the
// cluster removed the container, that goes before everything: it terminated all
// processes, and their times mean nothing. The returned exit has the earliest time, so
// that no follower is earlier.
func FirstExit(exits []Exit, together time.Duration) (Exit, Order) {
	earliest := earliestOf(exits)
	e, order := firstOf(exits, earliest, together)
	e.At = earliest
	return e, order
}

// whole reports whether the cause ended the whole container, whichever process exited
// first.
func (c Cause) whole() bool {
	return c == CauseInitExited || c == CauseRemoved || c == CauseDiskFull
}

func firstOf(exits []Exit, earliest time.Time, together time.Duration) (Exit, Order) {
	if whole := only(exits, func(e Exit) bool { return e.Cause.whole() }); len(whole) > 0 {
		return mainOf(whole), ""
	}
	near := only(exits, func(e Exit) bool { return e.At.Sub(earliest) < together })
	known := only(near, func(e Exit) bool { return e.Cause != CauseRuntimeLost })
	switch {
	case len(known) == 0: // the container is the cause, not a process
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

// mainOf returns the exit that stands for the whole container: main's if there is one.
func mainOf(exits []Exit) Exit {
	return slices.MinFunc(exits, func(a, b Exit) int {
		return cmp.Or(-compareBool(a.Exec == MainExec, b.Exec == MainExec), cmp.Compare(a.Exec, b.Exec))
	})
}

// compareExits orders simultaneous exits. It compares the exec ids last, so that the
// result does not depend on the order of the reports.
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

// Exit codes of a shell that could not run its command.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// ClassifyExit sets the cause of an exit of a starting instance. A shell's "not found"
// is a failed start, and the record says so in words.
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

// Description returns the sentence of the exit record that names the process and how it
// exited.
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
	case CauseRemoved:
		return "Container removed: " + e.Detail
	case CauseDiskFull:
		return "Disk limit exceeded: " + e.Detail
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

// ProbableSignal returns the signal that probably ended the process, or 0 for none. It is not
// certain, because a program that exits with 137 looks the same.
func (e Exit) ProbableSignal() int {
	if e.Code > 128 && e.Code < 128+65 {
		return e.Code - 128
	}
	return 0
}
