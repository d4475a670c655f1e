package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
)

// DomainFor returns the domain of a new route, if its space can have routes in that
// domain.
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
	return d, refuseAPIRoute(rt, d, w.apiDomain)
}

// RecordRoute records an event about a route.
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

// OpDeleteRoute is the job that deletes a route.
const OpDeleteRoute = "route.delete"

// deleteRoute deletes a route. A route that no longer exists is not an error, because
// the job can run twice.
func (del Deletions) deleteRoute(_ context.Context, guid string) error {
	if err := del.Registry.DeleteRoute(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// RecordMapping records which apps became destinations of a route, and which are no
// longer destinations.
func (w Tx) RecordMapping(old, rt app.Route, marks map[string]any) error {
	before, after := DestinationsByGUID(old), DestinationsByGUID(rt)
	for _, way := range []struct {
		event   string
		in, not map[string]app.Destination
	}{
		{"audit.app.map-route", after, before},
		{"audit.app.unmap-route", before, after},
	} {
		for _, guid := range slices.Sorted(maps.Keys(way.in)) {
			if _, both := way.not[guid]; both {
				continue
			}
			if err := w.recordDestination(way.event, rt, way.in[guid], marks); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w Tx) recordDestination(event string, rt app.Route, d app.Destination, marks map[string]any) error {
	a, err := w.Registry.App(d.App)
	if err != nil {
		return err
	}
	data := map[string]any{
		"route_guid": rt.GUID, "destination_guid": d.GUID, "route_mapping_guid": d.GUID, "process_type": d.ProcessType,
		"app_port": d.Port, "protocol": d.Protocol, "weight": nil,
	}
	if len(rt.Options) > 0 {
		data["route_options"] = rt.Options
	}
	maps.Copy(data, marks)
	return w.Record(event, a, data)
}

// DestinationsByGUID returns the destinations of a route by their guids.
func DestinationsByGUID(rt app.Route) map[string]app.Destination {
	out := make(map[string]app.Destination, len(rt.Destinations))
	for _, d := range rt.Destinations {
		out[d.GUID] = d
	}
	return out
}

// OpDeleteDomain is the job that deletes a domain.
const OpDeleteDomain = "domain.delete"

func (del Deletions) deleteDomain(_ context.Context, guid string) error {
	if err := del.Registry.DeleteDomain(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// CheckUnused refuses a domain in which an org has routes.
func CheckUnused(reg *registry.Registry, domain, org string) error {
	spaces, err := reg.SpacesOf(org)
	if err != nil {
		return err
	}
	routes, err := reg.Routes()
	if err != nil {
		return err
	}
	for _, rt := range routes {
		if rt.Domain == domain && slices.ContainsFunc(spaces, func(sp app.Space) bool { return sp.GUID == rt.Space }) {
			return Refuse("This domain has associated routes in this organization. Delete the routes before unsharing.")
		}
	}
	return nil
}

// DomainNames returns the names of all domains by their guids.
func (p *Platform) DomainNames() (map[string]string, error) {
	all, err := p.Registry.Domains()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, d := range all {
		names[d.GUID] = d.Name
	}
	return names, nil
}

// OpDeleteUnmapped is the job that deletes the routes of a space without destinations.
const OpDeleteUnmapped = "space.delete_unmapped_routes"

// Unmapped holds the arguments of OpDeleteUnmapped.
type Unmapped struct {
	Space string    `json:"space"`
	Actor app.Actor `json:"actor"`
}

func (del Deletions) deleteUnmappedRoutes(_ context.Context, j app.Job) ([]string, error) {
	var args Unmapped
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
	}
	return nil, del.ChangeAs(args.Actor, func(w Tx) error {
		all, err := w.Registry.Routes()
		if err != nil {
			return err
		}
		for _, rt := range all {
			if rt.Space != args.Space || len(rt.Destinations) > 0 {
				continue
			}
			if err := errors.Join(w.RecordRoute("audit.route.delete-request", rt, nil), w.Registry.DeleteRoute(rt.GUID)); err != nil {
				return err
			}
		}
		return nil
	})
}
