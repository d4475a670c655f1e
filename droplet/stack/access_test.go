package stack

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestCheckStaging(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		is            Access
		staged        bool
		warning, want string
	}{
		{is: Access{State: AccessActive}},
		{is: Access{State: AccessDeprecated, Reason: "use b"}, warning: "stack 'a' is deprecated: use b"},
		{is: Access{State: AccessRestricted}, staged: true},
		{is: Access{State: AccessRestricted}, want: "stack 'a' is restricted and cannot be used for staging new applications"},
		{is: Access{State: AccessDisabled, Reason: "use b"}, staged: true, want: "stack 'a' is disabled and cannot be used for staging: use b"},
	} {
		warning, err := tt.is.CheckStaging("a", tt.staged)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if warning != tt.warning || got != tt.want {
			t.Errorf("%+v, staged %v: %q %q, want %q %q", tt.is, tt.staged, warning, got, tt.warning, tt.want)
		}
	}
}

// The state of a stack is stored, and the next daemon has it.
func TestAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "dew.db"))
	open := func() *Stacks {
		s, err := Open(db, Options{Dir: filepath.Join(dir, "stacks")})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	if is, err := s.Access("x"); err != nil || is.State != AccessActive {
		t.Errorf("standing = %+v %v, want ACTIVE", is, err)
	}
	if err := s.SetAccess("x", Access{State: "GONE"}); !errors.Is(err, ErrState) {
		t.Errorf("set = %v, want ErrStackState", err)
	}
	want := Access{State: AccessDisabled, Reason: "old"}
	if err := s.SetAccess("x", want); err != nil {
		t.Fatal(err)
	}
	if is, err := open().Access("x"); err != nil || is != want {
		t.Errorf("standing = %+v %v, want %+v", is, err, want)
	}
}
