package runtime

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/verdict"
)

// CrashState is what an engine can still observe of an instance that crashed.
type CrashState struct {
	Listening []Listener `json:"listening,omitempty"`
	Memory    Memory     `json:"memory,omitzero"` // of the whole instance
	Disk      Disk       `json:"disk,omitzero"`   // zero: it has no limit
}

// Disk is the disk usage of an instance, in bytes.
type Disk struct {
	Limit   int64  `json:"limit"`
	Used    int64  `json:"used"`
	Largest string `json:"largest,omitempty"`  // directory that has most of the files, if the disk is full
	Size    int64  `json:"size,omitempty"`     // of Largest
	NoFiles bool   `json:"no_files,omitempty"` // no more files can be created, whatever their size
}

// Full reports whether the instance has used all of its disk limit.
func (d Disk) Full() bool { return verdict.Disk(d).Full() }

// Listener is a TCP port on which a process was listening.
type Listener struct {
	Exec     string `json:"exec"`
	Port     int    `json:"port"`
	Loopback bool   `json:"loopback,omitempty"` // only for connections from inside the instance
}

// FailedCheck is the last result of a health check that failed.
type FailedCheck struct {
	Type     string        `json:"type"`
	Endpoint string        `json:"endpoint,omitempty"`
	Status   int           `json:"status,omitempty"` // of the response; 0: no response
	Timeout  time.Duration `json:"timeout,omitempty"`
}

// SentSignal is a signal that was sent to a process.
type SentSignal struct {
	Number int    `json:"number"`
	User   string `json:"user,omitempty"` // if a user sent it with dew

	// The sending process, if the kernel reported it.
	Sender    string `json:"sender,omitempty"` // name of the program
	SenderPID int    `json:"sender_pid,omitempty"`
	Self      bool   `json:"self,omitempty"` // the process sent it to itself
}

// SenderName names the sending process, or is empty.
func (s SentSignal) SenderName() string {
	switch {
	case s.SenderPID == 0:
		return ""
	case s.Sender == "":
		return fmt.Sprintf("process %d", s.SenderPID)
	default:
		return fmt.Sprintf("%s (process %d)", s.Sender, s.SenderPID)
	}
}

// SentSignals has the signals that users sent to running instances. The zero value is
// ready to use.
type SentSignals struct {
	mu   sync.Mutex
	sent map[InstanceID]map[string]SentSignal // by exec
}

// Add records a signal before it is sent.
func (s *SentSignals) Add(id InstanceID, exec string, sent SentSignal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[InstanceID]map[string]SentSignal{}
	}
	if s.sent[id] == nil {
		s.sent[id] = map[string]SentSignal{}
	}
	s.sent[id][exec] = sent
}

// Of returns the last signal that was sent to a process, or nil.
func (s *SentSignals) Of(id InstanceID, exec string) *SentSignal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent, ok := s.sent[id][exec]; ok {
		return &sent
	}
	return nil
}

// Forget removes the signals of a deleted instance.
func (s *SentSignals) Forget(id InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sent, id)
}

// Output has the last lines of a process, oldest first.
type Output struct {
	Exec   string   `json:"exec"`
	Stdout []string `json:"stdout,omitempty"`
	Stderr []string `json:"stderr,omitempty"`
}

const (
	// LastLines is how many lines of each process a record contains.
	LastLines = 20
	// maxLine is how many bytes of a line a record contains.
	maxLine = 512
)

// SetOutput stores the last lines of a process, which replace earlier ones.
func (r *ExitRecord) SetOutput(exec string, lines []logstream.Envelope) {
	o := Output{Exec: exec}
	for _, l := range lines[max(0, len(lines)-LastLines):] {
		text := string(l.Text[:min(len(l.Text), maxLine)])
		if l.Stream == logstream.Err {
			o.Stderr = append(o.Stderr, text)
		} else {
			o.Stdout = append(o.Stdout, text)
		}
	}
	r.Output = slices.DeleteFunc(r.Output, func(o Output) bool { return o.Exec == exec })
	if len(lines) > 0 {
		r.Output = append(r.Output, o)
	}
}

// Verdict explains the crash of an app with this name.
func (r ExitRecord) Verdict(app string) verdict.Verdict { return verdict.Explain(r.facts(app)) }

// exitRecordWords are in the line of an exit record. Clients count the lines that
// contain them.
var exitRecordWords = []string{"app instance exited", "crashed", "exited with status"}

// LogSentence explains the crash in the app's log. It contains none of the words by
// which clients find exit records, even if the app printed them.
func (r ExitRecord) LogSentence() string {
	v := r.Verdict("")
	for _, w := range exitRecordWords {
		if strings.Contains(strings.ToLower(v.Sentence), w) {
			r.Output = nil // without the app's own words
			return strings.NewReplacer("exited with status", "failed with status", "crashed", "failed").Replace(r.Verdict("").Sentence)
		}
	}
	return v.Sentence
}

func (r ExitRecord) facts(app string) verdict.Facts {
	f := verdict.Facts{
		App: app, ProcessType: r.Type, Index: r.Slot.Index, Stack: r.Stack, Port: r.Port,
		Starting: r.Phase == PhaseStarting, Unwatched: r.Phase == PhaseUnwatched,
		First: r.fact(r.First), Memory: verdict.Memory(r.State.Memory), Disk: verdict.Disk(r.State.Disk),
	}
	if !r.StartedAt.IsZero() {
		f.Uptime = r.First.At.Sub(r.StartedAt)
	}
	for _, e := range r.Followers {
		f.Followers = append(f.Followers, r.fact(e))
	}
	for _, l := range r.State.Listening {
		if l.Exec == r.First.Exec {
			f.Listening = append(f.Listening, verdict.Listener{Port: l.Port, Loopback: l.Loopback})
		}
	}
	if c := r.First.Check; c != nil {
		f.Health = verdict.Health{Type: c.Type, Endpoint: c.Endpoint, Status: c.Status, Timeout: c.Timeout}
	}
	return f
}

func (r ExitRecord) fact(e Exit) verdict.Exit {
	out := verdict.Exit{
		Sidecar: e.Name, Code: e.Code, Cause: r.class(e), Detail: e.Detail,
		Memory: verdict.Memory(e.Memory), Delay: e.At.Sub(r.First.At),
	}
	if e.Signal != nil {
		out.Signal = verdict.Signal{Number: e.Signal.Number, User: e.Signal.User, Sender: e.Signal.SenderName(), Self: e.Signal.Self}
	}
	for _, o := range r.Output {
		if o.Exec == e.Exec {
			out.Stdout, out.Stderr = o.Stdout, o.Stderr
		}
	}
	if out.Cause == verdict.MemoryProcess && out.Memory.Limit == 0 {
		out.Memory.Limit = r.State.Memory.Limit
	}
	return out
}

// classes are the classes of causes that need no other facts.
var classes = map[Cause]verdict.Class{
	CauseExited: verdict.Exited, CauseUnhealthy: verdict.Unhealthy, CauseStartTimeout: verdict.StartTimeout,
	CauseStartFailed: verdict.StartFailed, CausePeerExited: verdict.PeerExited, CauseStopTimeout: verdict.StopTimeout, CauseCaptureFailed: verdict.OutputFailed,
	CauseInitExited: verdict.ContainerLost, CauseRuntimeLost: verdict.ContainerLost,
	CauseRemoved: verdict.Removed, CauseDiskFull: verdict.DiskFull,
}

func (r ExitRecord) class(e Exit) verdict.Class {
	switch {
	case e.Cause == CauseOutOfMemory:
		return r.memoryClass(e)
	case e.Cause == CauseExited && e.Signal != nil && e.Signal.User != "" && e.Code == signalBase+e.Signal.Number:
		return verdict.KilledByUser
	}
	if c, ok := classes[e.Cause]; ok {
		return c
	}
	return verdict.Unknown
}

// memoryClass finds out which limit the process reached. The kernel counts a kill in
// the leaf of the killed process, whichever limit was the cause.
func (r ExitRecord) memoryClass(e Exit) verdict.Class {
	whole := r.State.Memory
	switch {
	case e.Memory.reached():
		return verdict.MemoryProcess
	case whole.reached() && max(r.Processes, 1+len(r.Followers)) == 1:
		return verdict.MemoryProcess // it is the only process, and the rest was memory of dew-init
	case whole.reached():
		return verdict.MemoryInstance
	case whole.Limit > 0 && whole.Peak > 0 && (e.Memory.Limit == 0 || e.Memory.Peak > 0):
		return verdict.MemoryHost
	}
	return verdict.MemoryProcess
}

// reached reports whether the peak is at the limit. The kernel kills before the last
// pages are used.
func (m Memory) reached() bool { return m.Limit > 0 && m.Peak >= m.Limit-m.Limit/50 }

// signalBase is the status of a process that a signal ended, without the signal.
const signalBase = 128
