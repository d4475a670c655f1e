package command

import (
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
