package stack

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/store"
)

// The states of a stack, which decide which apps can be staged with it.
const (
	AccessActive     = "ACTIVE"     // all apps
	AccessDeprecated = "DEPRECATED" // all apps, with a warning
	AccessRestricted = "RESTRICTED" // only apps that already have a droplet
	AccessDisabled   = "DISABLED"   // no apps; running instances keep running
)

// ErrState is the error for an unknown state.
var ErrState = errors.New("state must be ACTIVE, DEPRECATED, RESTRICTED or DISABLED")

// Access is the state of a stack, which decides which apps can use it, and the reason.
type Access struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Access returns the access of the stack with guid.
func (s *Stacks) Access(guid string) (Access, error) {
	if s.access == nil {
		return Access{State: AccessActive}, nil
	}
	is, err := s.access.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return Access{State: AccessActive}, nil
	}
	if err != nil {
		return is, fmt.Errorf("cannot read the state of stack %s: %w", guid, err)
	}
	return is, nil
}

// SetAccess sets the access of a stack.
func (s *Stacks) SetAccess(guid string, is Access) error {
	if !slices.Contains([]string{AccessActive, AccessDeprecated, AccessRestricted, AccessDisabled}, is.State) {
		return fmt.Errorf("%w, not %q", ErrState, is.State)
	}
	if s.access == nil {
		return errors.New("cannot store the state of a stack: this dewd does not store stacks")
	}
	if err := s.access.Put(guid, is); err != nil {
		return fmt.Errorf("cannot store the state of stack %s: %w", guid, err)
	}
	return nil
}

// CheckStaging refuses to stage with a stack if its state does not allow that. staged
// means that the app already has a droplet. The returned text is a warning.
func (is Access) CheckStaging(stack string, staged bool) (warning string, err error) {
	because := ""
	if is.Reason != "" {
		because = ": " + is.Reason
	}
	switch {
	case is.State == AccessDisabled:
		return "", fmt.Errorf("stack '%s' is disabled and cannot be used for staging%s", stack, because)
	case is.State == AccessRestricted && !staged:
		return "", fmt.Errorf("stack '%s' is restricted and cannot be used for staging new applications%s", stack, because)
	case is.State == AccessDeprecated:
		return fmt.Sprintf("stack '%s' is deprecated%s", stack, because), nil
	}
	return "", nil
}
