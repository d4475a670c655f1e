// Package verdict explains crashes. Its rules are pure functions from the facts that
// dewd recorded to one sentence, the evidence for it, and what to do. A rule that is
// not certain does not match: an unknown cause is better than a guess.
//
// There is one file per class of causes. To add a rule, write a function of type rule
// in the file of its class, add it to rules, and add a row to the table in its test.
package verdict

import (
	"fmt"
	"strings"
	"time"
)

// Class is the kind of cause of a crash. The values are part of the API and of the
// metrics.
type Class string

// The classes of causes.
const (
	Exited         Class = "exited"           // the process exited by itself
	Signaled       Class = "signaled"         // the process died from its own fault, such as SIGSEGV
	MemoryProcess  Class = "memory_process"   // the kernel killed it: the limit of the process was reached
	MemoryInstance Class = "memory_instance"  // the kernel killed it: the limit of the whole instance was reached
	MemoryHost     Class = "memory_host"      // the kernel killed it: the machine ran out of memory
	Unhealthy      Class = "unhealthy"        // a health check failed after the instance was healthy
	StartTimeout   Class = "start_timeout"    // the instance was not healthy in time
	StartFailed    Class = "start_failed"     // the process could not be started
	StopTimeout    Class = "stop_timeout"     // the process did not exit after SIGTERM
	PeerExited     Class = "peer_exited"      // another process of the instance exited first
	Killed         Class = "killed"           // a signal that dew did not send
	KilledByUser   Class = "killed_on_demand" // a signal that a user sent with dew
	OutputFailed   Class = "output_failed"    // dewd could not read the output any more
	DiskFull       Class = "disk_full"        // the disk limit of the instance was reached
	ContainerLost  Class = "container_lost"   // the container ended, and the exit status is lost
	Removed        Class = "removed"          // the cluster removed the Pod for a reason outside the app
	Unknown        Class = "unknown"
)

// Verdict explains one crash.
type Verdict struct {
	Class    Class
	Sentence string   // what crashed and why, without a final period
	Evidence []string // the facts that the sentence is based on
	Advice   string   // what to do; empty if nothing useful is known
}

// Facts are what dewd recorded about one crash. A zero value means that the fact is not
// known.
type Facts struct {
	App         string // name
	ProcessType string // "web"
	Index       int
	Stack       string
	Starting    bool // it was not healthy yet
	Unwatched   bool // dewd was not running
	Uptime      time.Duration
	First       Exit
	Followers   []Exit
	Health      Health
	Port        int        // the value of $PORT
	Listening   []Listener // sockets that accepted connections when it crashed
	Memory      Memory     // of the whole instance
	Disk        Disk
}

// Exit is one process that exited, or that failed its health check.
type Exit struct {
	Sidecar string // name; empty for the process of the app itself
	Command string // start command
	Code    int    // 128+signal if a signal killed it; -1 if not known
	Cause   Class  // as far as dewd knows it: Exited, if only the status is known
	Detail  string // the error that dewd got
	Memory  Memory
	Stderr  []string      // the last lines, oldest first
	Stdout  []string      // the last lines, oldest first
	Signal  Signal        // who sent the signal, if a signal killed it
	Delay   time.Duration // since the first exit
}

// Signal is how a process was killed.
type Signal struct {
	Number int    // 0: not killed, or not known
	Sender string // process that sent it, if the kernel reported it
	Self   bool   // the process sent it to itself
	User   string // user who sent it with dew
}

// Memory is the memory of a process or an instance, in bytes.
type Memory struct {
	Limit int64
	Peak  int64
}

// Disk is the disk usage of an instance, in bytes.
type Disk struct {
	Limit   int64
	Used    int64
	Largest string // directory that used most
	Size    int64  // of Largest
	NoFiles bool   // no more files can be created, whatever their size
}

// Health is the last result of the health check.
type Health struct {
	Type     string // "port", "http" or "process"
	Endpoint string // of an http check
	Status   int    // that the endpoint answered; 0: no answer
	Timeout  time.Duration
}

// Listener is a socket that a process of the instance listened on.
type Listener struct {
	Port     int
	Loopback bool // only connections from inside the instance are possible
}

// rule returns the verdict for facts that it recognises.
type rule func(Facts) (Verdict, bool)

// rules in order: the first that matches explains the crash. Rules with more evidence
// come before rules that only know the status.
var rules = []rule{
	killedByUser, outOfMemory, outputFailed, containerLost, removed,
	evicted, diskFull,
	httpStatus, wrongPort, loopbackOnly, httpSilent, notListening, unhealthy,
	missingLibrary, notExecutable, commandNotFound, startFailed,
	javaMemory, javaOptions, nodeMemory, portInUse,
	goPanic, pythonError, nodeError, javaError, rubyError,
	exitedZero, faultSignal, killed, stderrLine, exited,
}

// Explain returns the verdict for a crash. Its class is Unknown if no rule matches.
func Explain(f Facts) Verdict {
	for _, r := range rules {
		if v, ok := r(f); ok {
			return v
		}
	}
	return Verdict{Class: Unknown, Sentence: f.first() + " crashed; dew does not know why", Advice: "To see the last output: dew logs " + f.App + " --recent"}
}

// first names the process that exited first.
func (f Facts) first() string { return f.name(f.First) }

func (f Facts) name(e Exit) string {
	if e.Sidecar != "" {
		return "sidecar " + e.Sidecar
	}
	if f.ProcessType == "" {
		return "the app"
	}
	return f.ProcessType
}

// memoryKey is the manifest key that sets the memory limit of the first process.
func (f Facts) memoryKey() string {
	if f.First.Sidecar != "" {
		return "`memory` of sidecar " + f.First.Sidecar
	}
	return "`memory`"
}

// lines returns the last lines of the first process, standard error after standard
// output.
func (e Exit) lines() []string {
	return append(append([]string{}, e.Stdout...), e.Stderr...)
}

// lastLine returns the last line that is not empty.
func lastLine(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if s := strings.TrimSpace(lines[i]); s != "" {
			return s
		}
	}
	return ""
}

// maxQuote is how many characters of an app's output a sentence contains.
const maxQuote = 200

// quote shortens a line of output for a sentence.
func quote(s string) string {
	s = strings.Join(strings.Fields(strings.Map(printable, s)), " ")
	if r := []rune(s); len(r) > maxQuote {
		return string(r[:maxQuote-1]) + "…"
	}
	return s
}

// printable removes control characters, so that the output of an app cannot change the
// terminal.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
		return ' '
	}
	return r
}

// bytesText formats a number of bytes as in a manifest: 64M, 1.5G.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
		if n >= u.size {
			s := fmt.Sprintf("%.1f", float64(n)/float64(u.size))
			return strings.TrimSuffix(s, ".0") + u.name
		}
	}
	return fmt.Sprintf("%dB", n)
}
