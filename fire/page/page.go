package page

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The marks in the page around the figures.
const (
	beginMark = "<!-- figures: written by make fire -->"
	endMark   = "<!-- end of the figures -->"
)

// Write replaces the figures of a page, and the plot beside it.
func Write(file, plot string, all []Report) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(b)
	before, rest, ok := strings.Cut(text, beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !ok || !ended {
		return fmt.Errorf("cannot write %s: it has no marks for the figures", file)
	}
	err = replace(file, []byte(before+beginMark+"\n\n"+Figures(all)+"\n"+endMark+after))
	if i := Longest(all); i >= 0 {
		err = errors.Join(err, replace(plot, []byte(SVG(all[i]))))
	}
	return err
}

// Figures returns the tables of the page.
func Figures(all []Report) string {
	var b strings.Builder
	b.WriteString("| date | commit | seeds | apps | faults | slowest recovery | failed runs |\n|---|---|---|---|---|---|---|\n")
	for _, g := range groups(all) {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s | %.1f s | %d |\n", g.Date, g.Commit, seedRange(g.seeds), g.Apps, thousands(g.faults), g.Slowest, g.failed)
	}
	checked, faults := map[string]int{}, map[string]int{}
	for _, r := range all {
		sum(checked, r.Checked)
		sum(faults, r.Faults)
	}
	b.WriteString("\n| checked | count |\n|---|---|\n")
	for _, row := range [][2]string{
		{"log lines, each once and in order", "lines"},
		{"log lines at the syslog server", "drained lines"},
		{"exits, each with one record", "exits"},
		{"acknowledged writes", "writes"},
		{"accepted notifications", "mails"},
		{"requests to apps", "requests"},
		{"deployments, pushes, service operations and sessions", "operations"},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], thousands(checked[row[1]]))
	}
	b.WriteString("\n| fault | count |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, thousands(faults[name]))
	}
	return b.String()
}

// group has the runs of one day, commit and number of apps.
type group struct {
	Report
	seeds          []uint64
	faults, failed int
}

func groups(all []Report) []*group {
	var out []*group
	for _, r := range all {
		i := slices.IndexFunc(out, func(g *group) bool { return g.Date == r.Date && g.Commit == r.Commit && g.Apps == r.Apps })
		if i < 0 {
			out = append(out, &group{Report: Report{Date: r.Date, Commit: r.Commit, Apps: r.Apps}})
			i = len(out) - 1
		}
		g := out[i]
		g.seeds = append(g.seeds, r.Seed)
		g.faults += r.Total()
		g.Slowest = max(g.Slowest, r.Slowest)
		if r.Failure != "" {
			g.failed++
		}
	}
	return out
}

func sum(to, from map[string]int) {
	for name, n := range from {
		to[name] += n
	}
}

// seedRange returns seeds as 1–5, 9.
func seedRange(seeds []uint64) string {
	seeds = slices.Compact(slices.Sorted(slices.Values(seeds)))
	var parts []string
	for i := 0; i < len(seeds); {
		j := i
		for j+1 < len(seeds) && seeds[j+1] == seeds[j]+1 {
			j++
		}
		part := strconv.FormatUint(seeds[i], 10)
		if j > i {
			part += "–" + strconv.FormatUint(seeds[j], 10)
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// thousands returns a number with commas: 12,345.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
