package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/doctor"
)

// A problem that cannot be repaired is listed, for doctor as well, until a later
// attempt repairs it.
func TestSetAsideIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := newSetAside(root, slog.New(slog.DiscardHandler))
	damage := errors.Join(errors.New("cannot remove a"), fmt.Errorf("cannot remove b: %w", errors.Join(errors.New("x"), errors.New("y"))))
	tries := 0
	s.add("stacks", func() error { tries++; return damage })
	s.add("logs", func() error { return nil })
	texts := func(list []v3.SetAside) (out []string) {
		for _, a := range list {
			out = append(out, a.Part+": "+a.Error)
		}
		return out
	}
	s.try()
	want := []string{"stacks: cannot remove a", "stacks: cannot remove b: x; y"}
	if diff := cmp.Diff(want, texts(s.List())); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if f := setAsideRule(root); f.Level != doctor.Warning || f.What != want[0]+"; "+want[1] {
		t.Errorf("doctor = %+v", f)
	}
	first := s.List()
	s.try()
	if diff := cmp.Diff(first, s.List()); diff != "" || tries != 2 {
		t.Errorf("after %d tries the list differs (-first +second):\n%s", tries, diff)
	}
	damage = nil
	s.try()
	if got := s.List(); len(got) != 0 {
		t.Errorf("list = %v, want nothing", got)
	}
	if f := setAsideRule(root); f.Level != doctor.OK {
		t.Errorf("doctor = %+v, want ok", f)
	}
}

// A new daemon removes the problems of an earlier one from the list once they are
// repaired.
func TestSetAsideOfAnEarlierDaemonIsForgotten(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := newSetAside(root, slog.New(slog.DiscardHandler))
	old.add("logs", func() error { return errors.New("damaged") })
	old.try()
	next := newSetAside(root, slog.New(slog.DiscardHandler))
	next.add("logs", func() error { return nil })
	next.try()
	if list, err := readSetAside(filepath.Join(root, setAsideFile)); err != nil || len(list) != 0 {
		t.Errorf("file = %v, %v, want none", list, err)
	}
}
