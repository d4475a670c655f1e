package api

import (
	"errors"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
)

// setStanding changes who may use a stack, as far as the body says.
func (s *Server) setStanding(k stack.Record, body v3.UpdateStack) error {
	if body.State == nil && body.StateReason == nil {
		return nil
	}
	is, err := s.kept().Access(k.GUID)
	if err != nil {
		return err
	}
	if body.State != nil {
		is.State = *body.State
	}
	if body.StateReason != nil {
		is.Reason = *body.StateReason
	}
	err = s.kept().SetAccess(k.GUID, is)
	if errors.Is(err, stack.ErrState) {
		return rest.Unprocessable("%v", err)
	}
	return err
}

// mayStage refuses a build with a stack that the app may not use any more.
func (s *Server) mayStage(a app.App) (warnings []string, err error) {
	if a.Docker() {
		return nil, nil
	}
	all, err := s.usable()
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if !runsOn(a, k) {
			continue
		}
		is, err := s.kept().Access(k.GUID)
		if err != nil {
			return nil, err
		}
		text, err := is.MayStage(k.Name, a.Droplet != "")
		if err != nil {
			return nil, rest.Unprocessable("%v", err)
		}
		if text != "" {
			s.say(a.GUID, text)
			return []string{text}, nil
		}
	}
	return nil, nil
}
