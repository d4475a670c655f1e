package app

import "testing"

// one returns the value and stops the test on an error.
func one[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
