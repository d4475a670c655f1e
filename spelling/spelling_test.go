package spelling

import (
	"slices"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"push", "app", "apps", "restage", "restart"}
	for asked, want := range map[string]string{"psuh": "push", "restrat": "restart", "ap": "app", "frobnicate": "", "x": "", "": ""} {
		if got := Nearest(asked, names); got != want {
			t.Errorf("%q: %q, want %q", asked, got, want)
		}
	}
}

// Any name gives an answer that is one of the candidates, or none.
func FuzzNearest(f *testing.F) {
	for _, s := range []string{"push", "psuh", "", "ä\xff", "restaaaart"} {
		f.Add(s)
	}
	names := []string{"push", "app", "ärmel", ""}
	f.Fuzz(func(t *testing.T, asked string) {
		got := Nearest(asked, names)
		if got != "" && !slices.Contains(names, got) {
			t.Errorf("%q: %q is not a candidate", asked, got)
		}
	})
}
