package droplet

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestMayStage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		is            StackAccess
		staged        bool
		warning, want string
	}{
		{is: StackAccess{State: StackActive}},
		{is: StackAccess{State: StackDeprecated, Reason: "use b"}, warning: "stack 'a' is deprecated: use b"},
		{is: StackAccess{State: StackRestricted}, staged: true},
		{is: StackAccess{State: StackRestricted}, want: "stack 'a' is restricted and cannot be used for staging new applications"},
		{is: StackAccess{State: StackDisabled, Reason: "use b"}, staged: true, want: "stack 'a' is disabled and cannot be used for staging: use b"},
	} {
		warning, err := tt.is.MayStage("a", tt.staged)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if warning != tt.warning || got != tt.want {
			t.Errorf("%+v, staged %v: %q %q, want %q %q", tt.is, tt.staged, warning, got, tt.warning, tt.want)
		}
	}
}

// The state of a stack is kept, also for the next daemon.
func TestStanding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "dew.db"))
	open := func() *Stacks {
		s, err := OpenStacks(db, StackOptions{Dir: filepath.Join(dir, "stacks")})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	if is, err := s.Access("x"); err != nil || is.State != StackActive {
		t.Errorf("standing = %+v %v, want ACTIVE", is, err)
	}
	if err := s.SetAccess("x", StackAccess{State: "GONE"}); !errors.Is(err, ErrStackState) {
		t.Errorf("set = %v, want ErrStackState", err)
	}
	want := StackAccess{State: StackDisabled, Reason: "old"}
	if err := s.SetAccess("x", want); err != nil {
		t.Fatal(err)
	}
	if is, err := open().Access("x"); err != nil || is != want {
		t.Errorf("standing = %+v %v, want %+v", is, err, want)
	}
}
