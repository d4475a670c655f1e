package top

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/dewrun/dew/cli/console"
)

// clean makes a text of the daemon safe to print on one line. Names and details can come
// from users and from processes.
func clean(s string) string {
	if isPlain(s) {
		return s
	}
	s = string(console.AppendPrintable(nil, []byte(s), false))
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp): // such as a change of the direction of text
			return '?'
		}
		return r
	}, s)
}

// isPlain reports whether s has only printable ASCII characters.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// textWidth is the number of columns that s takes on a terminal.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r >= ' ' && r <= '~', r >= '─' && r <= '╿', r == '…', r == '·': // own marks
			n++
		default:
			return ansi.StringWidth(s) // slow, because of characters that are combined
		}
	}
	return n
}

// fit shortens s to a number of columns. It cuts the end.
func fit(s string, width int) string {
	if textWidth(s) <= width {
		return s
	}
	return ansi.Truncate(s, width, "…")
}

// fitEnd shortens s to a number of columns. It cuts the start, because the end of a path
// is the name.
func fitEnd(s string, width int) string {
	w := textWidth(s)
	if w <= width {
		return s
	}
	return ansi.TruncateLeft(s, w-width+1, "…")
}

// size writes an amount of bytes in at most 5 characters: 512B, 1.5K, 64M, 1023M, 1.2G.
func size(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(max(n, 0), 10) + "B"
	}
	value := float64(n)
	for _, unit := range []string{"K", "M", "G", "T", "P"} {
		if value /= 1 << 10; value < 1023.5 || unit == "P" {
			return short(value) + unit
		}
	}
	return "" // not reached: P is the last unit
}

// short writes a number with one decimal if it is small.
func short(value float64) string {
	if value < 9.95 {
		return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0")
	}
	return strconv.FormatFloat(value, 'f', 0, 64)
}

// percent writes a part of a core, or of any other whole.
func percent(part float64) string {
	decimals := 1
	if part >= 0.9995 {
		decimals = 0
	}
	return strconv.FormatFloat(100*part, 'f', decimals, 64) + "%"
}

// cores writes a number of cores.
func cores(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

// rate writes a number of requests per second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 99.95:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	case perSecond < 99999.5:
		return strconv.FormatFloat(perSecond, 'f', 0, 64)
	}
	return short(perSecond/1000) + "k"
}

// age writes a duration with at most two units: 42s, 5m3s, 2h14m, 3d4h, 412d.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0).Truncate(time.Second)
	two := func(unit, smaller time.Duration, name, smallerName string) string {
		text := strconv.Itoa(int(d/unit)) + name
		if rest := d % unit / smaller; rest > 0 {
			text += strconv.Itoa(int(rest)) + smallerName
		}
		return text
	}
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return two(time.Minute, time.Second, "m", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	case d < 100*day:
		return two(day, time.Hour, "d", "h")
	}
	return strconv.Itoa(int(d/day)) + "d"
}

// plural writes a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
