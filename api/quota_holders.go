package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
)

// recordQuota keeps an event about a quota, which is in its org or in none, and
// about a place that it was given to.
func (w transaction) recordQuota(what string, k app.Quota, at access.Place, data map[string]any) error {
	kind := "organization_quota"
	if k.Org != "" {
		kind = "space_quota"
	}
	at.Org = cmp.Or(at.Org, k.Org)
	return w.recordAt("audit."+kind+"."+what, app.Target{GUID: k.GUID, Type: kind, Name: k.Name}, at, data)
}

// recordAt keeps an event about something in a place.
func (w transaction) recordAt(kind string, target app.Target, at access.Place, data map[string]any) error {
	return w.events.Record(app.Event{Type: kind, Actor: w.actor, Target: target, Space: at.Space, Org: at.Org, Data: data})
}

// beginQuotaRemoval records who wants a quota to go, and begins.
func (s *Server) beginQuotaRemoval(r *http.Request, k app.Quota, operation string) (any, error) {
	if err := s.change(r.Context(), func(w transaction) error { return w.recordQuota("delete", k, access.Place{}, nil) }); err != nil {
		return nil, err
	}
	return s.begin(r.Context(), operation, removal{GUID: k.GUID})
}

func (s *Server) doDeleteQuota(_ context.Context, guid string) error {
	return gone(s.c.Registry.DeleteQuota(guid))
}

// applyToOrgs gives orgs a quota.
func (w transaction) applyToOrgs(k app.Quota, orgs []string) error {
	guid := k.GUID
	if guid == app.Unlimited().GUID {
		guid = ""
	}
	for _, org := range orgs {
		o, err := w.registry.UpdateOrg(org, func(o *app.Org) error { o.Quota = guid; return nil })
		if errors.Is(err, app.ErrNotFound) {
			return rest.Unprocessable("Organizations with guids [\"%s\"] do not exist, or you do not have access to them.", org)
		}
		if err != nil {
			return err
		}
		if err := w.recordQuota("apply", k, access.Place{Org: o.GUID}, map[string]any{"organization_guid": o.GUID, "organization_name": o.Name}); err != nil {
			return err
		}
	}
	return nil
}

// applyToSpaces gives spaces of its org a quota.
func (w transaction) applyToSpaces(k app.Quota, spaces []string) error {
	for _, guid := range spaces {
		sp, err := w.registry.UpdateSpace(guid, func(sp *app.Space) error {
			if sp.Org != k.Org {
				return app.ErrNotFound
			}
			sp.Quota = k.GUID
			return nil
		})
		if errors.Is(err, app.ErrNotFound) {
			return rest.Unprocessable("Spaces with guids [\"%s\"] do not exist within the organization specified, or you do not have access to them.", guid)
		}
		if err != nil {
			return err
		}
		if err := w.recordQuota("apply", k, access.Place{Space: sp.GUID}, map[string]any{"space_guid": sp.GUID, "space_name": sp.Name}); err != nil {
			return err
		}
	}
	return nil
}
