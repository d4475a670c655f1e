package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

const output = `goos: linux
pkg: github.com/dewrun/dew/cmd/dewd
BenchmarkPeers-2   	       1	       110.5 MB-dew	       431.0 ms/dew	       520.4 ms/dew-p90	      1799 ms/docker
--- BENCH: BenchmarkPeers-2
    bench_peers_test.go:66: docker: [1.7s]; dew: [431ms]
    bench_peers_test.go:86: not compared with docker compose: COMPOSE_BIN names no program
BenchmarkCurves/Instances 	       1	        95.0 ms/instance-1	       100.0 ms/instance-100
PASS
`

// Each run changes the rows of its benchmarks, and leaves the others.
func TestFiguresAddUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := testkit.WriteFile(t, filepath.Join(dir, "performance.md"), "before\n"+beginMark+"\nold\n"+endMark+"\nafter\n")
	run := func(commit, date, text string) {
		t.Helper()
		var copied bytes.Buffer
		if err := update(dir, commit, date, strings.NewReader(text), &copied); err != nil || copied.String() != text {
			t.Fatalf("update: %v, copied %q", err, copied.String())
		}
	}
	run("abc", "2026-01-01", output)
	run("def", "2026-01-02", "BenchmarkCurves/Instances-8 1 100 ms/instance-1 140 ms/instance-100\n")
	text := string(testkit.Must(os.ReadFile(page))(t))
	for _, want := range []string{
		"before\n", "\nafter\n",
		"| a changed file of the sample until it answers through its sidecar | 431 ms (p90 520) | docker: 1,799 ms | **0.24** | at most 0.3 | 2026-01-01, abc |\n",
		"| 100 instances started at once, time for each | 140 ms | one instance: 100 ms | **1.40** | at most 1.3: missed | 2026-01-02, def |\n",
		"\n`Peers` was not compared with docker compose: COMPOSE_BIN names no program.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") || strings.Contains(text, "podman") {
		t.Errorf("the page has its old figures, or figures that nobody measured:\n%s", text)
	}
	svg := string(testkit.Must(os.ReadFile(filepath.Join(dir, "performance.svg")))(t))
	if strings.Count(svg, "<title>") != 2 || !strings.Contains(svg, "0.80 of the goal") || !strings.Contains(svg, "1.08 of the goal") {
		t.Errorf("plot = %s, want two bars", svg)
	}
}

// Output without figures changes no file.
func TestNothingMeasured(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"FAIL\n":                     "no benchmark has measured anything, so nothing is written",
		"BenchmarkPush 1 x ms/push":  `cannot read the figures of Push: strconv.ParseFloat: parsing "x": invalid syntax`,
		"BenchmarkPush-2 1 7 a b":    `cannot read the figures of Push: "7 a b" are not pairs of a number and a unit`,
		"BenchmarkPush-2 1 7 ms/one": "", // the page is missing
	} {
		dir := t.TempDir()
		err := update(dir, "abc", "2026-01-01", strings.NewReader(text), &bytes.Buffer{})
		if err == nil || want != "" && err.Error() != want {
			t.Errorf("%q: error = %v, want %s", text, err, want)
		}
		if left := testkit.Must(os.ReadDir(dir))(t); len(left) != 0 {
			t.Errorf("%q: files %v were written", text, left)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.004: "0", 0.71: "0.71", 5.678: "5.68", 18.64: "18.6", 431.4: "431", 3520123.4: "3,520,123", 1000: "1,000", 61: "61", -3.5: "-3.5",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

// Every row is of a benchmark that exists.
func TestRowsHaveBenchmarks(t *testing.T) {
	t.Parallel()
	var source bytes.Buffer
	for _, folder := range []string{"cmd/dewd", "runtime/containerd"} {
		files := testkit.Must(filepath.Glob(filepath.Join("..", "..", folder, "bench_*_test.go")))(t)
		for _, file := range files {
			source.Write(testkit.Must(os.ReadFile(file))(t))
		}
	}
	for _, r := range rows {
		name, _, _ := strings.Cut(r.benchmark, "/")
		if !strings.Contains(source.String(), "func Benchmark"+name+"(") {
			t.Errorf("there is no benchmark %s", name)
		}
	}
}
