package runtime

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/logstream"
)

// Phase is the part of its life in which an instance exited.
type Phase string

// The phases of an ExitRecord.
const (
	PhaseStarting  Phase = "starting"  // not healthy yet
	PhaseRunning   Phase = "running"   // was healthy before
	PhaseUnwatched Phase = "unwatched" // while no daemon was watching
)

// ReasonCrashed is the reason of every exit record. Requested stops leave no record.
const ReasonCrashed = "CRASHED"

// ExitRecord describes one crash of an instance: which process exited first and why,
// which followed, and when the next start is. Line prints it with eight fields, and
// ExitLog stores it in full.
type ExitRecord struct {
	Number   uint64     `json:"number"` // per slot, from 1; set by ExitLog
	Slot     SlotID     `json:"slot"`
	App      string     `json:"app"`
	Type     string     `json:"type"`
	Instance InstanceID `json:"instance"`
	Cell     string     `json:"cell"`
	Version  string     `json:"version"`
	Droplet  string     `json:"droplet,omitempty"`

	Reason         string  `json:"reason"`
	Description    string  `json:"description"`
	Phase          Phase   `json:"phase"`
	First          Exit    `json:"first"`
	ProbableSignal int     `json:"probable_signal,omitempty"`
	Order          Order   `json:"order,omitempty"`
	Followers      []Exit  `json:"followers,omitempty"` // in the order in which they became known
	Lines          []Lines `json:"lines,omitempty"`     // position of the last lines of each process in the log, if known

	StartedAt time.Time  `json:"started_at,omitzero"`
	Stack     string     `json:"stack,omitempty"`
	Port      int        `json:"port,omitempty"`      // the value of $PORT
	Processes int        `json:"processes,omitempty"` // number of processes of the instance
	Output    []Output   `json:"output,omitempty"`
	State     CrashState `json:"state,omitzero"`

	CrashCount int       `json:"crash_count"`
	CrashedAt  time.Time `json:"crashed_at"`
	NextStart  time.Time `json:"next_start,omitzero"` // zero if the slot is given up
	GivenUp    bool      `json:"given_up,omitempty"`
	Complete   bool      `json:"complete"`           // every process has exited
	CountReset bool      `json:"forgiven,omitempty"` // the crash count starts over after this record
	Unlogged   bool      `json:"unlogged,omitempty"` // the app's log has refused its line so far
}

// RecordID identifies an exit record.
type RecordID struct {
	Slot   SlotID
	Number uint64
}

// ID returns the slot and the number of the record.
func (r ExitRecord) ID() RecordID { return RecordID{r.Slot, r.Number} }

// CrashOrder returns a time for each record, by which records are sorted: the time of the
// crash. If the clock was set back after the previous crash of the slot, it is the time of
// that one and a nanosecond. So a later record of a slot is never sorted before an earlier one.
func CrashOrder(records []ExitRecord) map[RecordID]time.Time {
	inOrder := slices.SortedFunc(slices.Values(records), func(a, b ExitRecord) int { return cmp.Compare(a.Number, b.Number) })
	order, last := make(map[RecordID]time.Time, len(records)), map[SlotID]time.Time{}
	for _, r := range inOrder {
		at := r.CrashedAt
		if before, ok := last[r.Slot]; ok && !at.After(before) {
			at = before.Add(1)
		}
		order[r.ID()], last[r.Slot] = at, at
	}
	return order
}

// Lines is the range of sequence numbers in the app's log that belong to the last lines
// of a process.
type Lines struct {
	Exec string `json:"exec"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// payload has the fields of the line that tools read, in the platform's order.
type payload struct {
	Instance        InstanceID `json:"instance"`
	Index           int        `json:"index"`
	CellID          string     `json:"cellid"`
	Reason          string     `json:"reason"`
	ExitDescription string     `json:"exitdescription"`
	CrashCount      int        `json:"crashcount"`
	CrashTimestamp  int64      `json:"crashtimestamp"`
	Version         string     `json:"version"`
}

// Line returns the record in the form that it has in the app's log stream.
func (r ExitRecord) Line() string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // keep "<" readable
	err := enc.Encode(payload{
		Instance:        r.Instance,
		Index:           r.Slot.Index,
		CellID:          r.Cell,
		Reason:          r.Reason,
		ExitDescription: r.Description,
		CrashCount:      r.CrashCount,
		CrashTimestamp:  r.CrashedAt.UnixNano(),
		Version:         r.Version,
	})
	if err != nil {
		panic(fmt.Sprintf("a struct of strings and numbers cannot be encoded: %v", err))
	}
	return fmt.Sprintf("App instance exited with guid %s payload: %s", r.App, bytes.TrimSpace(b.Bytes()))
}

// SourceAPI is the log source of the exit lines of instances.
const SourceAPI = "API"

// Envelope returns the line as an entry of the app's log.
func (r ExitRecord) Envelope() logstream.Envelope {
	return logstream.Envelope{Source: logstream.Source{Type: SourceAPI}, Stream: logstream.Out, Text: []byte(r.Line())}
}

// ClockSlack is how far the clock can have been set back between the exit of a process
// and the line about it.
const ClockSlack = 10 * time.Minute

// LineFilter selects the line of the record in the app's log.
func (r ExitRecord) LineFilter() logstream.Filter {
	return logstream.Filter{
		Source: SourceAPI, NoGaps: true, Since: r.CrashedAt.Add(-ClockSlack),
		Contains: `payload: {"instance":"` + string(r.Instance) + `"`,
	}
}

// CrashesInARow returns the number of crashes in a row, for the count of the next
// record.
func (r ExitRecord) CrashesInARow() int {
	if r.CountReset {
		return 0
	}
	return r.CrashCount
}

// Has reports whether the record already contains the exit of exec.
func (r ExitRecord) Has(exec string) bool {
	if r.First.Exec == exec && r.First.Ended() {
		return true
	}
	return len(only(r.Followers, func(e Exit) bool { return e.Exec == exec })) > 0
}

// Ended reports whether e is the exit of a process. An unhealthy instance also has a
// first Exit, but its process runs until it is signalled.
func (e Exit) Ended() bool {
	return e.Cause != CauseUnhealthy && e.Cause != CauseStartTimeout
}

// Follow adds the exit of another process. Its cause is the first exit, unless the
// clocks are inconclusive or contradict that. Then it keeps its own cause.
func (r *ExitRecord) Follow(e Exit, together time.Duration) {
	certain := r.First.Cause.whole()
	switch d := e.At.Sub(r.First.At); {
	case !r.First.Ended() && e.Exec == r.First.Exec:
		e.Cause = r.First.Cause
	case e.Cause == CauseInitExited && !certain:
		r.Order = OrderLate // it terminated the first one, and became known after it
	case e.Cause == CauseStopTimeout:
	case !r.First.Ended() || certain || d >= together:
		e.Cause = CausePeerExited
	case d <= -together:
		r.Order = OrderLate
	case r.Order == "":
		r.Order = OrderTogether
	}
	r.Followers = append(r.Followers, e)
}

// Mark records the position of the last lines of exec in the log.
func (r *ExitRecord) Mark(exec string, lines []logstream.Envelope) {
	if len(lines) == 0 || lines[0].Seq == 0 {
		return
	}
	r.Lines = append(r.Lines, Lines{Exec: exec, From: lines[0].Seq, To: lines[len(lines)-1].Seq})
}
