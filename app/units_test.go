package app

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseMB(t *testing.T) {
	for s, want := range map[string]int{
		"1M": 1, "64M": 64, "64MB": 64, "64m": 64, "64mb": 64, "64Mb": 64, "064M": 64,
		"1G": 1024, "1gb": 1024, "1.5G": 1536, "2T": 2 << 20, "1024T": 1 << 30,
		"1024K": 1, "2047KB": 1, "1.9M": 1,
	} {
		if got, err := ParseMB(s); err != nil || got != want {
			t.Errorf("ParseMB(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
}

func TestParseMBRefuses(t *testing.T) {
	for s, want := range map[string]string{
		"": "unit", "64": "unit", "M": "unit", "64B": "unit", "64X": "unit", "64 M": "unit", " 64M": "unit", "64M\n": "unit",
		"-1M": "unit", "+1M": "unit", "1e3M": "unit", "0x10M": "unit", "1_000M": "unit", ".5G": "unit", "5.G": "unit", "64MiB": "unit", "64MBB": "unit",
		"٣M": "unit", "99999999999999999999M": "unit",
		"0M": "less than 1M", "1023K": "less than 1M", "0.5M": "less than 1M",
		"1025T": "more than 1024T", "999999999999999T": "more than 1024T",
	} {
		got, err := ParseMB(s)
		if err == nil || got != 0 {
			t.Errorf("ParseMB(%q) = %d, %v, want an error", s, got, err)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", s)) {
			t.Errorf("error of %q = %v, want %q and what was given", s, err, want)
		}
	}
}

// Every accepted text is an amount. It is the same in upper and lower case, with or
// without B, and when written in M.
func FuzzParseMB(f *testing.F) {
	for _, s := range []string{"64M", "1gb", "1.5T", "1023K", "", "-1M", "999999999999999T", "ſK", "1K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		mb, err := ParseMB(s)
		if err != nil {
			if mb != 0 {
				t.Errorf("ParseMB(%q) = %d with an error", s, mb)
			}
			return
		}
		if mb < 1 || mb > MaxMB {
			t.Errorf("ParseMB(%q) = %d", s, mb)
		}
		bare := strings.TrimRight(s, "bB")
		for _, same := range []string{strings.ToLower(s), strings.ToUpper(s), bare, bare + "B", fmt.Sprintf("%dM", mb)} {
			if got, err := ParseMB(same); err != nil || got != mb {
				t.Errorf("ParseMB(%q) = %d, but of %q = %d, %v", s, mb, same, got, err)
			}
		}
	})
}

// A log rate in a manifest is the same after it is parsed and formatted.
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
