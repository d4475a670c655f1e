package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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
		t.Errorf("the page has its old figures, or figures that were not measured:\n%s", text)
	}
	svg := string(testkit.Must(os.ReadFile(filepath.Join(dir, "performance.svg")))(t))
	if strings.Count(svg, "<title>") != 2 || !strings.Contains(svg, "0.80 of the goal") || !strings.Contains(svg, "1.08 of the goal") {
		t.Errorf("plot = %s, want two bars", svg)
	}
}

// Output without figures changes no file.
func TestNothingMeasured(t *testing.T) {
	t.Parallel()
	const nothing = "no benchmark of the table has measured anything, so nothing is written"
	for text, want := range map[string]string{
		"FAIL\n":                            nothing,
		"BenchmarkOther-2 1 7 ms/push":      nothing,
		"BenchmarkPush 1 7 ms/push x ms/it": `cannot read the figures of Push: strconv.ParseFloat: parsing "x": invalid syntax` + "\n" + nothing,
		"BenchmarkPush-2 1 7 a b":           `cannot read the figures of Push: "7 a b" are not pairs of a number and a unit` + "\n" + nothing,
		"BenchmarkPush-2 1 +Inf ms/push":    "cannot read the figures of Push: +Inf is not a measured number\n" + nothing,
	} {
		dir := t.TempDir()
		if err := update(dir, "abc", "2026-01-01", strings.NewReader(text), &bytes.Buffer{}); err == nil || err.Error() != want {
			t.Errorf("%q: error = %v, want %s", text, err, want)
		}
		if left := testkit.Must(os.ReadDir(dir))(t); len(left) != 0 {
			t.Errorf("%q: files %v were written", text, left)
		}
	}
}

// A line that cannot be read does not lose the others.
func TestOneBadLine(t *testing.T) {
	t.Parallel()
	all, err := parse(strings.NewReader("BenchmarkPush 1 x ms/push\n" + strings.Repeat("x", 1<<20) + "\nBenchmarkReady 1 665 ms/ready\n"))
	if err == nil || len(all) != 1 || all[0].Values["ms/ready"] != 665 {
		t.Errorf("parse = %v, %v; want the figures of Ready, and an error", all, err)
	}
}

// A row says what was measured if the row before it is missing, and is of another benchmark.
func TestMissingPeer(t *testing.T) {
	t.Parallel()
	lines := linesOf([]result{
		{Benchmark: "LogsFollowers", Values: map[string]float64{"%slower": -1.5}},
		{Benchmark: "Peers", Values: map[string]float64{"ms/dew": 400, "ms/podman": 1000}},
	})
	text := tables(lines, nil)
	if strings.Contains(text, "the same") || !strings.Contains(text, "| podman: 1,000 ms | **0.40** | at most 0.3: missed |") || !strings.Contains(text, "| -1.5 % |") {
		t.Errorf("table = %s", text)
	}
	if svg := plot(lines); strings.Contains(svg, `width="-`) || !strings.Contains(svg, "0.00 of the goal") {
		t.Errorf("plot = %s, want no bar below 0", svg)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.004: "0", 0.71: "0.71", 5.678: "5.68", 18.64: "18.6", 431.4: "431", 3520123.4: "3,520,123", 1000: "1,000", 61: "61", -3.5: "-3.5", -431: "-431", -0.001: "0",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

// Every row is of a benchmark that exists and reports its figures.
func TestRowsAreReported(t *testing.T) {
	t.Parallel()
	var source bytes.Buffer
	for _, folder := range []string{"cmd/dewd", "runtime/containerd"} {
		files := testkit.Must(filepath.Glob(filepath.Join("..", "..", folder, "bench_*_test.go")))(t)
		for _, file := range files {
			source.Write(testkit.Must(os.ReadFile(file))(t))
		}
	}
	// Units that a benchmark makes of a name and one of these.
	composed := regexp.MustCompile(`^(ms/)?(dew|cf|files|python|docker|compose|podman|caddy|nginx|traefik)(-unchanged|-empty|-req/s|-p99-ms|-MB/s|-messages/s)?$|^(ms/instance|µs/line|ms/app)-1(00|000)?$`)
	for _, r := range rows {
		name, part, _ := strings.Cut(r.benchmark, "/")
		if !strings.Contains(source.String(), "func Benchmark"+name+"(") || part != "" && !strings.Contains(source.String(), `b.Run("`+part+`"`) {
			t.Errorf("there is no benchmark %s", r.benchmark)
		}
		for _, unit := range []string{r.value, r.floor} {
			if !strings.Contains(source.String(), `"`+unit+`"`) && unit != "" && !composed.MatchString(unit) {
				t.Errorf("no benchmark reports %s", unit)
			}
		}
	}
}
