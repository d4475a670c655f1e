package app

import (
	"fmt"
	"testing"
)

// What a manifest says about the amount of log reads and writes the same.
func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{"-1": -1, "0": 0, "512B": 512, "16K": 16 << 10, "1.5mb": 3 << 19, "2G": 2 << 30} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v, want %d", text, got, err, want)
			continue
		}
		written := formatRate(&got)
		if got < 0 {
			written = formatRate(nil)
		}
		if again, err := ParseRate(fmt.Sprint(written)); err != nil || again != want {
			t.Errorf("%q was written as %v, which is %d, %v", text, written, again, err)
		}
	}
	for _, text := range []string{"", "16", "-2", "K", "16KK", "1e3K", "99999999T"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", text, got)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	f.Add("16K")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseRate(text)
		if err == nil && n < -1 {
			t.Errorf("%q = %d", text, n)
		}
	})
}
