package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
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

// parse reads the output of go test -bench. The log of a benchmark follows its figures.
func parse(in io.Reader) ([]result, error) {
	var all []result
	logged := ""
	for sc := bufio.NewScanner(in); ; {
		if !sc.Scan() {
			return all, sc.Err()
		}
		line := strings.TrimSpace(sc.Text())
		if m := benchmarkLine.FindStringSubmatch(line); m != nil {
			values, err := parseValues(m[3])
			if err != nil {
				return nil, fmt.Errorf("cannot read the figures of %s: %w", m[1], err)
			}
			all = append(all, result{Benchmark: m[1], Values: values})
		}
		if m := benchmarkLog.FindStringSubmatch(line); m != nil {
			logged = m[1]
		}
		if m := leftOutLine.FindStringSubmatch(line); m != nil && len(all) > 0 && all[len(all)-1].Benchmark == logged {
			last := &all[len(all)-1]
			last.LeftOut = append(last.LeftOut, m[1])
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
		values[fields[i+1]] = v
	}
	return values, nil
}
