package daemon

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// eventHandlers answers requests about audit events.
type eventHandlers struct{ *Handlers }

func (h eventHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/audit_events", Needs: access.Authenticated,
			Handler: h.listEvents, Shape: rest.PageOf[v3.Event]("guids", "types", "target_guids", "target_guids[not]", "space_guids", "organization_guids", "actor_guids").OrderedBy(rest.ByTime...),
		},
		{Pattern: "GET /v3/audit_events/{guid}", Needs: access.Authenticated, Handler: h.getEvent, Shape: rest.Returns[v3.Event](200)},
	}
}

func (h eventHandlers) listEvents(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	events, err := h.Platform.Events.List(app.EventFilter{
		Types: q.Filters["types"], Targets: q.Filters["target_guids"],
		Spaces: q.Filters["space_guids"], Orgs: q.Filters["organization_guids"],
	})
	if err != nil {
		return nil, err
	}
	crashes, err := h.crashEvents(q)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(append(events, crashes...), func(e app.Event) bool {
		_, not := q.Filters["target_guids[not]"]
		return !perms.SeesEvent(e) || !q.Matches("guids", e.GUID) || !q.Matches("actor_guids", e.Actor.GUID) || not && q.Matches("target_guids[not]", e.Target.GUID)
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Event, v3.Event]{
		Key: func(e app.Event) rest.Key {
			return rest.Key{Name: e.Type, Created: e.CreatedAt, Updated: e.CreatedAt, GUID: e.GUID}
		},
		Present: h.presentEvent,
	}), nil
}

func (h eventHandlers) getEvent(r *http.Request) (any, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	e, err := h.eventOf(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	if !perms.SeesEvent(e) {
		return nil, rest.NotFound("Event")
	}
	return h.presentEvent(e), nil
}

func (h eventHandlers) eventOf(guid string) (app.Event, error) {
	e, err := h.Platform.Events.Get(guid)
	if err == nil || !errors.Is(err, app.ErrNotFound) {
		return e, err
	}
	crashes, err := h.crashEvents(rest.Query{})
	if err != nil {
		return e, err
	}
	i := slices.IndexFunc(crashes, func(e app.Event) bool { return e.GUID == guid })
	if i < 0 {
		return e, rest.NotFound("Event")
	}
	return crashes[i], nil
}

// crashEvents returns the exit records of the apps that the query selects, as events.
// They are not stored as events, because the exit records already hold the data.
func (h eventHandlers) crashEvents(q rest.Query) ([]app.Event, error) {
	if !q.Matches("types", eventCrash, eventProcessCrash, eventRescheduling) {
		return nil, nil
	}
	apps, err := h.Platform.Registry.Apps()
	if err != nil {
		return nil, err
	}
	orgs, err := h.Platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	var out []app.Event
	for _, a := range apps {
		if !q.Matches("target_guids", a.GUID) || !q.Matches("space_guids", a.Space) || !q.Matches("organization_guids", orgs[a.Space]) {
			continue
		}
		records, err := h.Platform.ExitsOf(a.GUID)
		if err != nil {
			return nil, err
		}
		for _, record := range records {
			out = append(out, CrashEvents(record, a, orgs[a.Space])...)
		}
	}
	return slices.DeleteFunc(out, func(e app.Event) bool { return !q.Matches("types", e.Type) }), nil
}

// The events of a crash.
const (
	eventCrash        = "app.crash"
	eventProcessCrash = "audit.app.process.crash"
	eventRescheduling = "audit.app.process.rescheduling" // the cluster removed the instance
)

// CrashEvents returns the events of an exit record. Their GUIDs are derived from the
// record, so the same record always has the same events.
func CrashEvents(r runtime.ExitRecord, a app.App, org string) []app.Event {
	data := map[string]any{
		"instance":         string(r.Instance),
		"index":            r.Slot.Index,
		"cell_id":          r.Cell,
		"reason":           r.Reason,
		"exit_description": r.Description,
		"exit_status":      r.First.Code,
		"crash_count":      r.CrashCount,
		"crash_timestamp":  r.CrashedAt.UnixNano(),
		"version":          r.Version,
	}
	event := func(kind string, who app.Actor) app.Event {
		name := fmt.Sprintf("%s/%s/%d", kind, r.Instance, r.Number)
		return app.Event{
			GUID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String(), Type: kind, Actor: who,
			Target: app.Target{GUID: a.GUID, Type: "app", Name: a.Name},
			Space:  a.Space, Org: org, Data: maps.Clone(data), CreatedAt: r.CrashedAt,
		}
	}
	process := app.Actor{GUID: r.Slot.Process, Type: "process", Name: r.Type}
	if !r.First.Cause.Counts() {
		return []app.Event{event(eventRescheduling, process)}
	}
	return []app.Event{
		event(eventCrash, app.Actor{GUID: a.GUID, Type: "app", Name: a.Name}),
		event(eventProcessCrash, process),
	}
}

func (h eventHandlers) presentEvent(e app.Event) v3.Event {
	out := v3.Event{
		GUID: e.GUID, CreatedAt: v3.At(e.CreatedAt), UpdatedAt: v3.At(e.CreatedAt), Type: e.Type, Data: e.Data,
		Actor:  v3.Party{GUID: e.Actor.GUID, Type: e.Actor.Type, Name: e.Actor.Name},
		Target: v3.Party{GUID: e.Target.GUID, Type: e.Target.Type, Name: e.Target.Name},
		Links:  v3.Links{"self": {Href: h.Links.Href("v3", "audit_events", e.GUID)}},
	}
	if e.Data == nil {
		out.Data = map[string]any{}
	}
	if e.Space != "" {
		out.Space = &v3.GUID{GUID: e.Space}
	}
	if e.Org != "" {
		out.Organization = &v3.GUID{GUID: e.Org}
	}
	return out
}
