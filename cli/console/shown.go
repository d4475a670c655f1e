package console

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// AppendPrintable appends text from an untrusted source. Control characters are written
// as ^[ or \x9b, so that a terminal does not execute them. Colours stay and are reset
// after the text, or are removed if color is false.
func AppendPrintable(b, text []byte, color bool) []byte {
	if n := len(text); n > 0 && text[n-1] == '\r' {
		text = text[:n-1] // a Windows line ending
	}
	painted := false
	for len(text) > 0 {
		plainly := 0
		for plainly < len(text) && (text[plainly] >= ' ' && text[plainly] < 0x7f || text[plainly] == '\t') {
			plainly++
		}
		b, text = append(b, text[:plainly]...), text[plainly:]
		if len(text) == 0 {
			break
		}
		if n := colourSize(text); n > 0 {
			if color {
				b, painted = append(b, text[:n]...), true
			}
			text = text[n:]
			continue
		}
		r, n := utf8.DecodeRune(text)
		b = appendRune(b, r, text[:n])
		text = text[n:]
	}
	if painted {
		b = append(b, NoColour...)
	}
	return b
}

// appendRune appends a character that is not plain ASCII.
func appendRune(b []byte, r rune, text []byte) []byte {
	const del, firstC1, lastC1 = 0x7f, 0x80, 0x9f
	switch {
	case r == utf8.RuneError && len(text) == 1:
		return fmt.Appendf(b, `\x%02x`, text[0])
	case r < ' ':
		return append(b, '^', byte(r)+'@')
	case r == del:
		return append(b, "^?"...)
	case r >= firstC1 && r <= lastC1:
		return fmt.Appendf(b, `\x%02x`, r)
	}
	return append(b, text...)
}

// colourSize is the length of the colour sequence (ESC [ numbers m) at the start of
// text, or 0.
func colourSize(text []byte) int {
	const most = 32
	if len(text) < 3 || text[0] != 0x1b || text[1] != '[' {
		return 0
	}
	for i, c := range text[2:min(len(text), most)] {
		switch {
		case c == 'm':
			return i + 3
		case (c < '0' || c > '9') && c != ';' && c != ':':
			return 0
		}
	}
	return 0
}

// Printable is AppendPrintable for a text of several lines, without colours.
func Printable(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = string(AppendPrintable(nil, []byte(line), false))
	}
	return strings.Join(lines, "\n")
}
