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

// Report is the result of a run.
type Report struct {
	Status  int       `json:"status"` // exit status of the first failure
	Began   time.Time `json:"began"`
	Took    seconds   `json:"seconds"`
	Folders []Result  `json:"folders"`
}

// Result is the result of the test of one folder.
type Result struct {
	Folder    string    `json:"folder"`
	Status    int       `json:"status"`
	Skip      string    `json:"skipped,omitempty"` // why the whole folder was skipped
	Began     time.Time `json:"began"`
	Took      seconds   `json:"seconds"`
	TestSpace TestSpace `json:"place"`
	Steps     []Step    `json:"steps"`
	Bundle    string    `json:"bundle,omitempty"`
	Log       string    `json:"-"` // the last lines of its apps

	mask masker // hides the secrets in stored reports
}

// Step is one step of a test.
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
	Output string    `json:"output,omitempty"` // output of a failed script
}

// seconds is a duration in the format of reports.
type seconds time.Duration

// MarshalJSON writes seconds with three digits.
func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(json.Number(s.String())) }

func (s seconds) String() string { return fmt.Sprintf("%.3f", time.Duration(s).Seconds()) }

// Failed returns the first step that failed, with its folder.
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

// FailedFolders returns the number of folders that failed.
func (r Report) FailedFolders() int {
	n := 0
	for _, f := range r.Folders {
		if f.Status != 0 {
			n++
		}
	}
	return n
}

// Rows returns the report as a table. The first row is the head. A skipped folder is
// one row.
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

// dash replaces an empty cell, so that the next cells do not move.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Counts returns how many steps succeeded, failed and were skipped.
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
