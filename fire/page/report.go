package page

import (
	"time"

	"github.com/dewrun/dew/fire/world"
)

// Report is what one run of the suite has checked.
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
}

// Total returns the number of faults.
func (r Report) Total() (n int) {
	for _, count := range r.Faults {
		n += count
	}
	return n
}

// Add counts a fault.
func (r *Report) Add(fault string, took time.Duration) {
	r.Faults[fault]++
	r.Slowest = max(r.Slowest, took.Seconds())
}

// thin returns at most n samples, evenly spread, with the last one.
func thin(all []world.Sample, n int) []world.Sample {
	if len(all) <= n {
		return all
	}
	out := make([]world.Sample, n)
	for i := range out {
		out[i] = all[(i+1)*len(all)/n-1]
	}
	return out
}
