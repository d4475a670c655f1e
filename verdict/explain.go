package verdict

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// statuses are the meanings of exit statuses that are not the program's own.
var statuses = map[int]string{
	0:   "the program finished without an error. For an app this is a crash: its processes must run until dew stops them",
	1:   "the program reported an error. Its last line on standard error usually says which one",
	2:   "the program reported an error. A Go program exits with 2 after a panic; shells and many tools exit with 2 for wrong arguments",
	3:   "the program's own status. A JVM with -XX:+ExitOnOutOfMemoryError exits with 3 when it runs out of memory",
	126: "the shell found the command, but could not execute it: the file is not executable, or not a program for this machine",
	127: "the shell did not find the command, or a shared library of the program is missing",
	134: "the program found an error and stopped itself with SIGABRT. Node.js exits with 134 when it reaches its heap limit",
	137: "SIGKILL killed the process: it used more memory than its limit, it did not stop within 10 seconds after SIGTERM, or a person or program killed it. dew why APP says which",
	139: "SIGSEGV killed the process: it accessed memory that it does not have",
	143: "SIGTERM asked the process to stop, and it did not handle the signal. This is normal when dew stops an instance",
	255: "the program reported an error (-1). ssh exits with 255 when it cannot connect",
}

// maxStatus is the largest exit status of a process.
const maxStatus = 255

// Status explains an exit status or a signal: "137", "SIGKILL", "kill", "9" is a status.
func Status(s string) (string, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 0 || n > maxStatus {
			return "", fmt.Errorf("%d is not an exit status: a status is a number from 0 to %d", n, maxStatus)
		}
		return fmt.Sprintf("status %d: %s", n, statusMeaning(n)), nil
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
	n := unix.SignalNum(name)
	if n == 0 {
		return "", fmt.Errorf("%q is neither an exit status (0 to %d) nor a signal (such as KILL or SIGTERM)", s, maxStatus)
	}
	return fmt.Sprintf("%s (signal %d): a process that it kills has exit status %d. %s", name, n, 128+int(n), upper(signalMeaning(n))), nil
}

func statusMeaning(n int) string {
	if m := statuses[n]; m != "" {
		return m
	}
	s := syscall.Signal(n - 128)
	if name := unix.SignalName(s); n > 128 && name != "" {
		return fmt.Sprintf("%s killed the process, or the program exited with this status itself. %s: %s", name, name, signalMeaning(s))
	}
	return "the program's own status. Its documentation or its last output says what it means"
}

// meanings are about the signals that are not in faults.
var meanings = map[syscall.Signal]string{
	unix.SIGHUP: "the terminal or the connection of the process was closed", unix.SIGINT: "someone pressed Ctrl-C",
	unix.SIGQUIT: "someone asked the process to stop and to write its state, such as a thread dump",
	unix.SIGKILL: "the kernel or another process ended it at once; a process cannot handle this signal",
	unix.SIGTERM: "another process asked it to stop", unix.SIGPIPE: "it wrote to a connection or pipe that no one reads any more",
	unix.SIGALRM: "a timer that it set itself expired", unix.SIGXCPU: "it used more processor time than its limit",
	unix.SIGXFSZ: "it wrote a file larger than its limit", unix.SIGUSR1: "a signal whose meaning the program defines",
	unix.SIGUSR2: "a signal whose meaning the program defines",
}

func signalMeaning(s syscall.Signal) string {
	if m := faults[s]; m != "" {
		return m
	}
	if m := meanings[s]; m != "" {
		return m
	}
	return "another process sent it"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
