package app

import "testing"

func TestAlternatives(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := alternatives(words); got != want {
			t.Errorf("alternatives(%q) = %q, want %q", words, got, want)
		}
	}
}
