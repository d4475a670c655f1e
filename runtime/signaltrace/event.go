package signaltrace

import (
	"strconv"
	"strings"
	"time"
)

// event is one line of a trace. The numbers of the sender are the thread and the
// process:
//
//	bash-1234    (   1230) [001] d..1.  123.456789: signal_generate: sig=9 errno=0 code=0 comm=sleep pid=1235 grp=1 res=0
type event struct {
	sender Sender
	target int // process id
	signal int
	at     time.Duration // since the machine started
}

// unknownName is how the kernel shows a process whose name it no longer knows.
const unknownName = "<...>"

// delivered is the result of a signal that reached the process.
const delivered = "res=0"

// parse reads one line of a trace. The names of programs can contain any character, so
// it searches for the other fields from the outside.
func parse(line string) (event, bool) {
	head, fields, ok := cutLast(strings.TrimRight(line, "\n"), ": signal_generate: ")
	if !ok || strings.HasPrefix(head, "#") || !strings.HasSuffix(fields, delivered) {
		return event{}, false
	}
	var e event
	words := strings.Fields(head)
	if len(words) < 3 {
		return event{}, false
	}
	at, err := time.ParseDuration(words[len(words)-1] + "s")
	if err != nil {
		return event{}, false
	}
	e.at = at
	task, _, ok := cutLast(head, " [")
	if !ok {
		return event{}, false
	}
	task, process, _ := cutLast(strings.TrimSpace(task), "(")
	name, thread, ok := cutLast(strings.TrimSpace(task), "-")
	if e.sender.PID, err = strconv.Atoi(thread); !ok || err != nil {
		return event{}, false
	}
	if pid, err := strconv.Atoi(strings.Trim(process, " )")); err == nil && pid > 0 {
		e.sender.PID = pid
	}
	if name != unknownName {
		e.sender.Name = name
	}
	first, rest, _ := strings.Cut(fields, " ")
	_, rest, ok = cutLast(rest, " pid=")
	target, _, _ := strings.Cut(rest, " ")
	if e.target, err = strconv.Atoi(target); !ok || err != nil {
		return event{}, false
	}
	number, ok := strings.CutPrefix(first, "sig=")
	if e.signal, err = strconv.Atoi(number); !ok || err != nil {
		return event{}, false
	}
	return e, true
}

// cutLast is like strings.Cut, with the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
