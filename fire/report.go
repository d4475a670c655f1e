package fire

import (
	"time"

	"github.com/dewrun/dew/fire/world"
)

// Report is what one run has checked.
type Report struct {
	Seed    uint64         `json:"seed"`
	Date    string         `json:"date"`
	Commit  string         `json:"commit,omitempty"`
	Apps    int            `json:"apps"`
	Seconds float64        `json:"seconds"`
	Faults  map[string]int `json:"faults"`
	Checked map[string]int `json:"checked"`
	Slowest float64        `json:"slowest"` // seconds from the end of a fault until all invariants held
	Failure string         `json:"failure,omitempty"`
	Samples []world.Sample `json:"samples,omitempty"`

	began time.Time
}

func newReport(o Options) Report {
	return Report{Seed: o.Seed, Apps: o.Apps, Date: time.Now().UTC().Format(time.DateOnly), Faults: map[string]int{}, Checked: map[string]int{}, began: time.Now()}
}

// add counts a fault.
func (r *Report) add(fault string, took time.Duration) {
	r.Faults[fault]++
	r.Slowest = max(r.Slowest, took.Seconds())
}

// finish fills in the numbers at the end of a run.
func (r *Report) finish(run *run) {
	r.Seconds = time.Since(r.began).Seconds()
	if run.ledger == nil || run.subject == nil {
		return
	}
	r.Checked = run.ledger.Counts()
	r.Checked["exits"] = len(run.ledger.Endings())
	for _, f := range run.subject.Followers {
		r.Checked["lines"] += f.Lines()
	}
	r.Checked["drained lines"], _, _ = run.peers.Drained()
	r.Samples = run.subject.Samples()
}
