package app

import "testing"

func TestCurrentIsBounded(t *testing.T) {
	p := Process{}
	for range maxCurrent {
		p = p.WithVersion("x")
	}
	p = p.WithVersion("last")
	if len(p.Current) != maxCurrent || !p.Keeps("last") {
		t.Errorf("%d versions, want %d with the last", len(p.Current), maxCurrent)
	}
}

func TestAlternatives(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := alternatives(words); got != want {
			t.Errorf("alternatives(%q) = %q, want %q", words, got, want)
		}
	}
}
