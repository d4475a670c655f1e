package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The marks in the page around the tables.
const (
	beginMark = "<!-- figures: written by make bench RECORD=1 -->"
	endMark   = "<!-- end of the figures -->"
)

// replaceFigures replaces what is between the marks.
func replaceFigures(page, tables string) (string, error) {
	before, rest, ok := strings.Cut(page, beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !ok || !ended {
		return "", errors.New("it has no marks for the figures")
	}
	return before + beginMark + "\n\n" + tables + "\n" + endMark + after, nil
}

// line is a row with its figures.
type line struct {
	row
	from  result
	ratio float64 // of value and floor; value itself if there is no floor
}

// linesOf returns the rows that were measured.
func linesOf(all []result) []line {
	var out []line
	for _, r := range rows {
		i := slices.IndexFunc(all, func(m result) bool { return m.Benchmark == r.benchmark })
		if i < 0 {
			continue
		}
		l := line{row: r, from: all[i]}
		value, measured := l.from.Values[r.value]
		floor, compared := l.from.Values[r.floor]
		switch {
		case r.against == "" && measured:
			l.ratio = value
		case measured && compared && floor != 0:
			l.ratio = value / floor
		default:
			continue
		}
		out = append(out, l)
	}
	return out
}

// margin is 1 at the goal and larger beyond it. Figures below 0 are as good as 0. It uses the
// ratio that the table shows.
func (l line) margin() float64 {
	shown := math.Round(max(l.ratio, 0)*100) / 100
	if l.atLeast {
		return l.goal / shown
	}
	return shown / l.goal
}

// tables returns the table of the lines, and what was left out.
func tables(lines []line, all []result) string {
	var b strings.Builder
	b.WriteString("| | dew | against | | goal | date, commit |\n|---|---|---|---|---|---|\n")
	for i, l := range lines {
		what := l.what
		if i > 0 && lines[i-1].benchmark == l.benchmark && lines[i-1].what == what {
			what = "the same"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s, %s |\n", what, l.shown(l.value), l.floorShown(), l.ratioShown(), l.goalShown(), l.from.Date, l.from.Commit)
	}
	for _, m := range all {
		for _, text := range m.LeftOut {
			fmt.Fprintf(&b, "\n`%s` was %s.\n", m.Benchmark, text)
		}
	}
	return b.String()
}

// shown returns a figure with its unit, and the one that nine of ten do not exceed.
func (l line) shown(name string) string {
	v, ok := l.from.Values[name]
	if !ok {
		return ""
	}
	text := number(v) + " " + l.unit
	if most, ok := l.from.Values[name+"-p90"]; ok {
		text += " (p90 " + number(most) + ")"
	}
	return text
}

func (l line) floorShown() string {
	if _, ok := l.from.Values[l.floor]; !ok {
		return l.against
	}
	return l.against + ": " + l.shown(l.floor)
}

func (l line) ratioShown() string {
	if l.against == "" {
		return ""
	}
	return "**" + strconv.FormatFloat(l.ratio, 'f', 2, 64) + "**"
}

func (l line) goalShown() string {
	if l.goal == 0 {
		return ""
	}
	limit := "at most "
	if l.atLeast {
		limit = "at least "
	}
	text := limit + number(l.goal)
	if l.against == "" {
		text += " " + l.unit
	}
	if l.margin() > 1 {
		text += ": missed"
	}
	return text
}

// number returns a figure with three digits, or all digits before the point, with commas.
func number(v float64) string {
	decimals := 0
	if v != 0 {
		decimals = min(max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0), 2)
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(v), 'f', decimals, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		whole += "." + fraction
	}
	if v < 0 && whole != "0" {
		return "-" + whole
	}
	return whole
}
