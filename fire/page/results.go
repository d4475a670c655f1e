package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// keptSamples is the number of measurements that a stored report has at most.
const keptSamples = 120

// Load reads the stored reports.
func Load(file string) ([]Report, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Report
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return all, nil
}

// Done reports whether a seed was run with at least n faults on a commit, without a
// failure. An interrupted run continues with the next seed.
func Done(all []Report, commit string, seed uint64, n int) bool {
	return slices.ContainsFunc(all, func(r Report) bool {
		return r.Commit == commit && r.Seed == seed && r.Failure == "" && r.Total() >= n
	})
}

// Store adds a report to the file. Only the longest run keeps its measurements, because
// the page has one plot.
func Store(file string, r Report) ([]Report, error) {
	all, err := Load(file)
	if err != nil {
		return nil, err
	}
	r.Samples = thin(r.Samples, keptSamples)
	r.Failure, _, _ = strings.Cut(r.Failure, "\n")
	all = append(all, r)
	longest := Longest(all)
	for i := range all {
		if i != longest {
			all[i].Samples = nil
		}
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return nil, err
	}
	return all, replace(file, append(b, '\n'))
}

// Longest returns the index of the longest run with measurements.
func Longest(all []Report) int {
	best := -1
	for i, r := range all {
		if len(r.Samples) > 1 && (best < 0 || r.Seconds > all[best].Seconds) {
			best = i
		}
	}
	return best
}

// replace writes a file in one step, so that an interrupted run leaves the old one.
func replace(file string, data []byte) error {
	next := file + ".new"
	f, err := os.Create(next)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(next, file)
}
