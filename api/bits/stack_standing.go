package bits

import (
	"errors"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet/stack"
)

// setStanding changes who may use a stack, as far as the body says.
func (h *Handlers) setStanding(k stack.Record, body v3.UpdateStack) error {
	if body.State == nil && body.StateReason == nil {
		return nil
	}
	is, err := h.Platform.Stacks().Access(k.GUID)
	if err != nil {
		return err
	}
	if body.State != nil {
		is.State = *body.State
	}
	if body.StateReason != nil {
		is.Reason = *body.StateReason
	}
	err = h.Platform.Stacks().SetAccess(k.GUID, is)
	if errors.Is(err, stack.ErrState) {
		return rest.Unprocessable("%v", err)
	}
	return err
}
