package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Probe is one attempt of an attacker.
type Probe struct {
	Group string // the part of dew that is attacked
	Name  string // what the attacker tries
	Want  string // what must happen
	Seen  string // what happened
}

// The marks in the page around the table.
const (
	beginMark = "<!-- probes: written by make probes -->"
	endMark   = "<!-- end of the probes -->"
)

// errMarks means that a page has no place for the table.
var errMarks = errors.New("the page has no marks for the probes")

// Table returns the probes as a table of Markdown, in their order.
func Table(probes []Probe) string {
	var b strings.Builder
	group := ""
	for _, p := range probes {
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "\n### %s\n\n| attempt | must happen | seen |\n|---|---|---|\n", group)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(p.Name), cell(p.Want), cell(p.Seen))
	}
	return b.String()
}

// cell returns a text that stays in one cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ", "<", "&lt;").Replace(s)
}

// Replace returns a page with another table.
func Replace(page string, probes []Probe) (string, error) {
	before, _, after, err := cut(page)
	if err != nil {
		return "", err
	}
	return before + beginMark + "\n" + Table(probes) + "\n" + endMark + after, nil
}

// Listed returns the probes of a page, without what they saw.
func Listed(page string) ([]Probe, error) {
	_, table, _, err := cut(page)
	if err != nil {
		return nil, err
	}
	var out []Probe
	group := ""
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "### "); ok {
			group = name
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 3 || strings.TrimSpace(cells[0]) == "attempt" {
			continue
		}
		out = append(out, Probe{Group: group, Name: strings.TrimSpace(cells[0]), Want: strings.TrimSpace(cells[1])})
	}
	return out, nil
}

// Difference returns the probes that only one of two lists has, by group, name and what
// must happen. The first list is that of a page.
func Difference(listed, probes []Probe) (missing, unknown []string) {
	var have, want []string
	for _, p := range listed {
		have = append(have, p.Group+": "+p.Name+": "+p.Want)
	}
	for _, p := range probes {
		want = append(want, p.Group+": "+cell(p.Name)+": "+cell(p.Want))
	}
	without := func(all, others []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
	}
	return without(want, have), without(have, want)
}

func cut(page string) (before, table, after string, err error) {
	before, rest, ok := strings.Cut(page, beginMark)
	table, after, ended := strings.Cut(rest, endMark)
	if !ok || !ended {
		return "", "", "", errMarks
	}
	return before, table, after, nil
}
