package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dewrun/dew/logstream"
)

// Phase is the part of its life in which an instance ended.
type Phase string

// The phases of an ExitRecord.
const (
	PhaseStarting  Phase = "starting"  // not healthy yet
	PhaseRunning   Phase = "running"   // healthy before
	PhaseUnwatched Phase = "unwatched" // while no daemon was there to see
)

// ReasonCrashed is the reason of every exit record: stops that were asked for
// leave none.
const ReasonCrashed = "CRASHED"

// ExitRecord is one instance that crashed: who ended first and why, who
// followed, what it cost. It prints as the eight-field line and is kept in full
// by ExitLog.
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
	Followers      []Exit  `json:"followers,omitempty"` // in the order they became known
	Lines          []Lines `json:"lines,omitempty"`     // the last lines of each process, where known

	CrashCount int       `json:"crash_count"`
	CrashedAt  time.Time `json:"crashed_at"`
	NextStart  time.Time `json:"next_start,omitzero"` // zero when given up
	GivenUp    bool      `json:"given_up,omitempty"`
	Complete   bool      `json:"complete"`           // every process has ended
	Forgiven   bool      `json:"forgiven,omitempty"` // the count starts over after it
}

// Lines is the range of sequence numbers in the app's log that the last lines of
// a process have.
type Lines struct {
	Exec string `json:"exec"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// payload has the fields of the line that tools read, in the order they have on
// the platform.
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

// Line is the record as it stands in the app's log stream.
func (r ExitRecord) Line() string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a reader should find "<" where there was one
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

// CrashesInARow is the number of crashes in a row that this record stands for, as far as
// the next one is concerned.
func (r ExitRecord) CrashesInARow() int {
	if r.Forgiven {
		return 0
	}
	return r.CrashCount
}

// Has tells whether the record knows the end of exec already.
func (r ExitRecord) Has(exec string) bool {
	if r.First.Exec == exec && r.First.Ended() {
		return true
	}
	return len(only(r.Followers, func(e Exit) bool { return e.Exec == exec })) > 0
}

// Ended tells whether e is the end of a process. An unhealthy instance has a first
// Exit too, but its process lives until it is signalled.
func (e Exit) Ended() bool {
	return e.Cause != CauseUnhealthy && e.Cause != CauseStartTimeout
}

// Follow adds the end of another process. It ended because of the first, unless
// the clocks cannot tell, or tell otherwise: then its own cause stands.
func (r *ExitRecord) Follow(e Exit, together time.Duration) {
	certain := r.First.Cause == CauseInitExited
	switch d := e.At.Sub(r.First.At); {
	case !r.First.Ended() && e.Exec == r.First.Exec:
		e.Cause = r.First.Cause
	case e.Cause == CauseInitExited && !certain:
		r.Order = OrderLate // it took the first one along, and became known after it
	case !r.First.Ended() || certain || d >= together:
		e.Cause = CausePeerExited
	case d <= -together:
		r.Order = OrderLate
	case r.Order == "":
		r.Order = OrderTogether
	}
	r.Followers = append(r.Followers, e)
}

// Mark notes where in the log the last lines of exec are.
func (r *ExitRecord) Mark(exec string, lines []logstream.Envelope) {
	if len(lines) == 0 || lines[0].Seq == 0 {
		return
	}
	r.Lines = append(r.Lines, Lines{Exec: exec, From: lines[0].Seq, To: lines[len(lines)-1].Seq})
}
