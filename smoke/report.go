package smoke

import (
	"encoding/json"
	"fmt"
	"time"
)

// The kinds and states of steps.
const (
	KindNeeds   = "needs"
	KindBuild   = "build"
	KindPlace   = "place"
	KindService = "service"
	KindBefore  = "before"
	KindPush    = "push"
	KindWait    = "wait"
	KindCheck   = "check"

	StateOK      = "ok"
	StateFailed  = "failed"
	StateSkipped = "skipped"
)

// Report is how a run went.
type Report struct {
	Status  int       `json:"status"` // the exit status: that of the first failure
	Began   time.Time `json:"began"`
	Took    seconds   `json:"seconds"`
	Folders []Result  `json:"folders"`
}

// Result is how the test of one folder went.
type Result struct {
	Folder string    `json:"folder"`
	Status int       `json:"status"`
	Skip   string    `json:"skipped,omitempty"` // why the whole folder was skipped
	Began  time.Time `json:"began"`
	Took   seconds   `json:"seconds"`
	Place  Place     `json:"place"`
	Steps  []Step    `json:"steps"`
	Bundle string    `json:"bundle,omitempty"`
	Log    string    `json:"-"` // the last lines of its apps

	mask masker // of what a report that is kept must not tell
}

// Step is one thing that was done.
type Step struct {
	Name   string    `json:"name"`
	Kind   string    `json:"kind"`
	App    string    `json:"app,omitempty"`
	State  string    `json:"state"`
	Status int       `json:"status,omitempty"`
	Began  time.Time `json:"began"`
	Took   seconds   `json:"seconds"`
	Detail string    `json:"detail,omitempty"`
	Todo   string    `json:"todo,omitempty"`
	Output string    `json:"output,omitempty"` // of a script that failed
}

// seconds is a time as reports have it.
type seconds time.Duration

// MarshalJSON writes seconds with three digits.
func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(json.Number(s.String())) }

func (s seconds) String() string { return fmt.Sprintf("%.3f", time.Duration(s).Seconds()) }

// Failed is the first step that failed, with the folder it is of.
func (r Report) Failed() (Result, Step, bool) {
	for _, f := range r.Folders {
		for _, s := range f.Steps {
			if s.State == StateFailed {
				return f, s, true
			}
		}
	}
	return Result{}, Step{}, false
}

// FailedFolders is how many folders failed.
func (r Report) FailedFolders() int {
	n := 0
	for _, f := range r.Folders {
		if f.Status != 0 {
			n++
		}
	}
	return n
}

// Rows is the report as a table; the first row is the head. A folder that was skipped
// is one row.
func (r Report) Rows() [][]string {
	rows := [][]string{{"folder", "check", "app", "result", "took", "detail"}}
	for _, f := range r.Folders {
		steps := f.Steps
		if f.Skip != "" {
			steps = steps[:1]
		}
		for _, s := range steps {
			took := time.Duration(s.Took).Round(10 * time.Millisecond).String()
			if s.State == StateSkipped {
				took = "-"
			}
			rows = append(rows, []string{f.Folder, s.Name, dash(s.App), s.State, took, shorten(s.Detail)})
		}
	}
	return rows
}

// dash keeps an empty cell from moving the ones behind it.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Counts are how many steps succeeded, failed and were skipped.
func (r Report) Counts() (ok, failed, skipped int) {
	for _, f := range r.Folders {
		for _, s := range f.Steps {
			switch s.State {
			case StateOK:
				ok++
			case StateFailed:
				failed++
			case StateSkipped:
				skipped++
			}
		}
	}
	return ok, failed, skipped
}
