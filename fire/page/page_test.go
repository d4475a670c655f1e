package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/testkit"
)

func report(seed uint64, faults int, failure string) Report {
	return Report{
		Seed: seed, Date: "2026-11-17", Commit: "abc", Apps: 20, Seconds: float64(faults), Faults: map[string]int{"kill dewd": faults},
		Checked: map[string]int{"lines": 1000}, Slowest: float64(seed), Failure: failure, Samples: []world.Sample{{Seconds: 1, Memory: 1e6}, {Seconds: 2, Memory: 3e6}},
	}
}

// Reports add up in the file, and the page shows their sum between its marks.
func TestReportsAddUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, md, svg := filepath.Join(dir, "results.json"), testkit.WriteFile(t, filepath.Join(dir, "page.md"), "before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), filepath.Join(dir, "plot.svg")
	var all []Report
	for _, r := range []Report{report(1, 600, ""), report(2, 700, "it broke\nlong text"), report(4, 100, "")} {
		all = testkit.Must(Store(file, r))(t)
	}
	if err := Write(md, svg, all); err != nil {
		t.Fatal(err)
	}
	text := string(testkit.Must(os.ReadFile(md))(t))
	for _, want := range []string{
		"before\n", "\nafter\n", "| 2026-11-17 | abc | 1–2, 4 | 20 | 1,400 | 4.0 s | 1 |", "| log lines, each once and in order | 3,000 |", "| kill dewd | 1,400 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") {
		t.Errorf("the page has its old figures:\n%s", text)
	}
	if plot := string(testkit.Must(os.ReadFile(svg))(t)); !strings.Contains(plot, "Seed 2, 700 faults") || strings.Count(plot, "<polyline") != 4 {
		t.Errorf("plot = %s, want the longest run with four curves", plot)
	}
	stored := testkit.Must(Load(file))(t)
	if stored[1].Failure != "it broke" || stored[0].Samples != nil || stored[1].Samples == nil {
		t.Errorf("stored = %+v, want short failures, and samples only of the longest run", stored)
	}
}

// A run that was interrupted continues with the first seed that is not done.
func TestDone(t *testing.T) {
	t.Parallel()
	all := []Report{report(1, 100, ""), report(2, 100, "failed"), report(3, 50, "")}
	var done []bool
	for seed := uint64(1); seed <= 4; seed++ {
		done = append(done, Done(all, "abc", seed, 100))
	}
	if diff := cmp.Diff([]bool{true, false, false, false}, done); diff != "" {
		t.Errorf("done seeds (-want +got):\n%s", diff)
	}
	if Done(all, "other", 1, 100) {
		t.Error("a seed is done on a commit that has no runs")
	}
}

func TestThin(t *testing.T) {
	t.Parallel()
	all := make([]world.Sample, 1000)
	for i := range all {
		all[i].Seconds = float64(i)
	}
	if got := thin(all, 10); len(got) != 10 || got[9].Seconds != 999 || got[0].Seconds != 99 {
		t.Errorf("thinned = %v", got)
	}
}
