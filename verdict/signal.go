package verdict

import (
	"cmp"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// faults are the signals that the kernel sends to a process for its own fault, or that
// a process sends to itself.
var faults = map[syscall.Signal]string{
	unix.SIGSEGV: "it accessed memory that it does not have",
	unix.SIGBUS:  "it accessed memory that does not exist (a file that became shorter, or a full disk)",
	unix.SIGILL:  "it executed an instruction that this processor does not have",
	unix.SIGFPE:  "it divided by zero, or a calculation had no result",
	unix.SIGABRT: "it found an error and stopped itself",
	unix.SIGTRAP: "it stopped itself with a breakpoint or a failed check",
	unix.SIGSYS:  "it made a system call that is not allowed",
}

// signalOf returns the signal that killed the first process. A program can exit with
// status 137 without a signal, so a status alone is not certain.
func signalOf(f Facts) (s syscall.Signal, certain bool) {
	if f.First.Signal.Number > 0 {
		return syscall.Signal(f.First.Signal.Number), true
	}
	if f.First.Code > 128 && f.First.Code < 128+65 {
		return syscall.Signal(f.First.Code - 128), false
	}
	return 0, false
}

// faultSignal explains a process that died from its own fault.
func faultSignal(f Facts) (Verdict, bool) {
	s, _ := signalOf(f)
	meaning, ok := faults[s]
	if !ok || (f.First.Cause != Exited && f.First.Cause != Signaled) {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    Signaled,
		Sentence: fmt.Sprintf("%s crashed with %s: %s", f.first(), unix.SignalName(s), meaning),
		Evidence: []string{statusText(f)},
		Advice:   "To see its last output: dew logs " + cmp.Or(f.App, "APP") + " --recent",
	}
	if line := lastLine(f.First.Stderr); line != "" {
		v.Evidence = append(v.Evidence, "the last line that it wrote to standard error: "+quote(line))
	}
	return v, true
}

// killedByUser explains a process that a user killed with dew.
func killedByUser(f Facts) (Verdict, bool) {
	if f.First.Cause != KilledByUser {
		return Verdict{}, false
	}
	s, _ := signalOf(f)
	return Verdict{
		Class:    KilledByUser,
		Sentence: fmt.Sprintf("%s was killed: %s sent it %s with dew", f.first(), cmp.Or(f.First.Signal.User, "a user"), cmp.Or(unix.SignalName(s), "a signal")),
		Evidence: []string{statusText(f)},
		Advice:   "Nothing to do: dew starts a new instance",
	}, true
}

// killed explains a process that a signal killed, which dew did not send.
func killed(f Facts) (Verdict, bool) {
	s, certain := signalOf(f)
	name := unix.SignalName(s)
	if name == "" || (f.First.Cause != Exited && f.First.Cause != Killed) {
		return Verdict{}, false
	}
	v := Verdict{Class: Killed, Evidence: []string{"dewd recorded neither an out-of-memory kill nor a signal of a user"}}
	switch {
	case f.First.Signal.Self:
		v.Sentence = fmt.Sprintf("%s was killed: it sent %s to itself", f.first(), name)
		v.Evidence = []string{"the kernel recorded the signal and its sender", statusText(f)}
		v.Advice = "Find out where the app, or a program that it uses, sends this signal"
		return v, true
	case f.First.Signal.Sender != "":
		v.Sentence = fmt.Sprintf("%s was killed: %s sent it %s", f.first(), quote(f.First.Signal.Sender), name)
		v.Advice = "Find out who started this program. dew starts a new instance"
		v.Evidence = []string{"the kernel recorded the signal and its sender", statusText(f)}
	case certain:
		v.Sentence = fmt.Sprintf("%s was killed by %s; the sender is unknown", f.first(), name)
	default:
		v.Sentence = fmt.Sprintf("%s ended with status %d: killed by %s from an unknown sender, or exited with %d itself", f.first(), f.First.Code, name, f.First.Code)
		v.Class = Exited
		if s == unix.SIGKILL || s == unix.SIGTERM {
			v.Class = Killed
		}
	}
	v.Advice = cmp.Or(v.Advice, "Check whether a script or a person on this machine sends signals to the app")
	return v, true
}
