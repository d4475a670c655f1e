package platform

import (
	"context"
	"errors"

	"github.com/dewrun/dew/app"
)

// DomainFor is the domain of a new route, if its space may have routes there.
func (w Tx) DomainFor(rt app.Route) (app.Domain, error) {
	d, err := w.Registry.Domain(rt.Domain)
	if err != nil && !errors.Is(err, app.ErrNotFound) {
		return d, err
	}
	space, spaceErr := w.Registry.Space(rt.Space)
	switch {
	case spaceErr != nil:
		return d, InvalidSpace(spaceErr)
	case err != nil || !d.UsableIn(space.Org):
		return d, Refuse("Invalid domain. Ensure that the domain exists and you have access to it.")
	case rt.Host == "" && d.Org == "" && !d.TCP():
		return d, Refuse("Missing host. Routes in shared domains must have a host defined.")
	}
	return d, nil
}

// RecordRoute keeps an event about a route.
func (w Tx) RecordRoute(kind string, rt app.Route, data map[string]any) error {
	d, err := w.Registry.Domain(rt.Domain)
	if err != nil {
		return err
	}
	e := app.Event{
		Type: kind, Actor: w.Actor, Space: rt.Space, Data: data,
		Target: app.Target{GUID: rt.GUID, Type: "route", Name: rt.URL(d.Name)},
	}
	if space, err := w.Registry.Space(rt.Space); err == nil {
		e.Org = space.Org
	}
	return w.Events.Record(e)
}

// OpDeleteRoute is the job that removes a route.
const OpDeleteRoute = "route.delete"

// doDeleteRoute removes a route. One that is gone already is fine: the job may
// be done twice.
func (p *Platform) doDeleteRoute(_ context.Context, guid string) error {
	if err := p.Registry.DeleteRoute(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}
