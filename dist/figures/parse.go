package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// result has the figures of one benchmark.
type result struct {
	Benchmark string             `json:"benchmark"` // Start, Curves/Instances
	Commit    string             `json:"commit"`
	Date      string             `json:"date"`
	Values    map[string]float64 `json:"values"`
	LeftOut   []string           `json:"left_out,omitempty"` // peers and why they did not run
}

var (
	benchmarkLine = regexp.MustCompile(`^Benchmark(\S+?)(-\d+)?\s+\d+\s+(\S.*)$`)
	benchmarkLog  = regexp.MustCompile(`^--- BENCH: Benchmark(\S+?)(-\d+)?$`)
	leftOutLine   = regexp.MustCompile(`^\S+_test\.go:\d+: (not compared with .*)$`)
)

// parse reads the output of go test -bench to its end, and returns the benchmarks that have
// a row. The log of a benchmark follows its figures. The error names the figures that
// cannot be read.
func parse(in io.Reader) (all []result, bad error) {
	logged := ""
	for r := bufio.NewReader(in); ; {
		text, err := r.ReadString('\n')
		line := strings.TrimSpace(text)
		if m := benchmarkLine.FindStringSubmatch(line); m != nil && slices.ContainsFunc(rows, func(r row) bool { return r.benchmark == m[1] }) {
			values, err := parseValues(m[3])
			if err != nil {
				bad = errors.Join(bad, fmt.Errorf("cannot read the figures of %s: %w", m[1], err))
			} else {
				all = append(all, result{Benchmark: m[1], Values: values})
			}
		}
		if m := benchmarkLog.FindStringSubmatch(line); m != nil {
			logged = m[1]
		}
		if m := leftOutLine.FindStringSubmatch(line); m != nil && len(all) > 0 && all[len(all)-1].Benchmark == logged {
			last := &all[len(all)-1]
			last.LeftOut = append(last.LeftOut, m[1])
		}
		if errors.Is(err, io.EOF) {
			return all, bad
		}
		if err != nil {
			return all, errors.Join(bad, err)
		}
	}
}

// parseValues reads pairs of a number and a unit.
func parseValues(text string) (map[string]float64, error) {
	values := map[string]float64{}
	fields := strings.Fields(text)
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("%q are not pairs of a number and a unit", text)
	}
	for i := 0; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return nil, err
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s is not a measured number", fields[i])
		}
		values[fields[i+1]] = v
	}
	return values, nil
}
