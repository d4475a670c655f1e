package console

import (
	"bytes"
	"testing"
)

// The output of an app cannot move the cursor, rename the window or type an answer for
// the user. Text, tabs and colours stay.
func TestAppendShown(t *testing.T) {
	for _, tt := range []struct{ text, coloured, bare string }{
		{"plain\ttext, ünïcode ✓", "plain\ttext, ünïcode ✓", "plain\ttext, ünïcode ✓"},
		{"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m" + NoColour, "red"},
		{"\x1b[38;5;200mx", "\x1b[38;5;200mx" + NoColour, "x"},
		{"\x1b[2J\x1b[H", "^[[2J^[[H", "^[[2J^[[H"},
		{"\x1b]0;title\x07", "^[]0;title^G", "^[]0;title^G"},
		{"over\rwritten\r", "over^Mwritten", "over^Mwritten"},
		{"\x9b2J \u009b2J \x7f", `\x9b2J \x9b2J ^?`, `\x9b2J \x9b2J ^?`},
		{"\xff\x00", `\xff^@`, `\xff^@`},
		{"\x1b[", "^[[", "^[["},
		{"\x1b", "^[", "^["},
		{"", "", ""},
	} {
		if got := string(AppendPrintable(nil, []byte(tt.text), true)); got != tt.coloured {
			t.Errorf("%q = %q, want %q", tt.text, got, tt.coloured)
		}
		if got := string(AppendPrintable(nil, []byte(tt.text), false)); got != tt.bare {
			t.Errorf("%q without colours = %q, want %q", tt.text, got, tt.bare)
		}
	}
	if got := Printable("one\x1b[2J\ntwo"); got != "one^[[2J\ntwo" {
		t.Errorf("shown = %q", got)
	}
}

func FuzzAppendShown(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m"))
	f.Add([]byte("\x9b\u009b\xff\x1b]0;x\x07"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := AppendPrintable(nil, text, false); bytes.ContainsAny(got, "\x1b\r\n\x07\x08\x7f\u009b") {
			t.Errorf("%q is shown as %q", text, got)
		}
	})
}
