package droplet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/store"
)

// The states of a stack: who may still stage with it.
const (
	StackActive     = "ACTIVE"     // everybody
	StackDeprecated = "DEPRECATED" // everybody, who is told
	StackRestricted = "RESTRICTED" // apps that have a droplet already
	StackDisabled   = "DISABLED"   // nobody; what runs goes on
)

// ErrStackState is the error for an unknown state.
var ErrStackState = errors.New("state must be ACTIVE, DEPRECATED, RESTRICTED or DISABLED")

// StackAccess is the state of a stack, which decides who may use it, and the reason.
type StackAccess struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Access returns that of the stack with guid.
func (s *Stacks) Access(guid string) (StackAccess, error) {
	if s.standings == nil {
		return StackAccess{State: StackActive}, nil
	}
	is, err := s.standings.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return StackAccess{State: StackActive}, nil
	}
	if err != nil {
		return is, fmt.Errorf("cannot read the state of stack %s: %w", guid, err)
	}
	return is, nil
}

// SetAccess says who may use a stack from now on.
func (s *Stacks) SetAccess(guid string, is StackAccess) error {
	if !slices.Contains([]string{StackActive, StackDeprecated, StackRestricted, StackDisabled}, is.State) {
		return fmt.Errorf("%w, not %q", ErrStackState, is.State)
	}
	if s.standings == nil {
		return errors.New("cannot keep the state of a stack: this daemon keeps no stacks")
	}
	if err := s.standings.Put(guid, is); err != nil {
		return fmt.Errorf("cannot keep the state of stack %s: %w", guid, err)
	}
	return nil
}

// MayStage refuses to stage with a stack that is not for everybody any more; staged
// says that the app has a droplet already. The text is what there is to tell.
func (is StackAccess) MayStage(stack string, staged bool) (warning string, err error) {
	because := ""
	if is.Reason != "" {
		because = ": " + is.Reason
	}
	switch {
	case is.State == StackDisabled:
		return "", fmt.Errorf("stack '%s' is disabled and cannot be used for staging%s", stack, because)
	case is.State == StackRestricted && !staged:
		return "", fmt.Errorf("stack '%s' is restricted and cannot be used for staging new applications%s", stack, because)
	case is.State == StackDeprecated:
		return fmt.Sprintf("stack '%s' is deprecated%s", stack, because), nil
	}
	return "", nil
}
