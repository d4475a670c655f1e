package platform

import (
	"cmp"
	"context"
	"errors"

	"github.com/dewrun/dew/app"
)

// The jobs that delete quotas.
const (
	OpDeleteOrgQuota   = "organization_quota.delete"
	OpDeleteSpaceQuota = "space_quota.delete"
)

// RecordQuota records an event about a quota. at is the org or space that the quota was
// assigned to. The default is the org of the quota, or none.
func (w Tx) RecordQuota(what string, k app.Quota, at Place, data map[string]any) error {
	kind := "organization_quota"
	if k.Org != "" {
		kind = "space_quota"
	}
	at.Org = cmp.Or(at.Org, k.Org)
	return w.RecordAt("audit."+kind+"."+what, app.Target{GUID: k.GUID, Type: kind, Name: k.Name}, at, data)
}

// RecordAt records an event about a resource in an org or space.
func (w Tx) RecordAt(kind string, target app.Target, at Place, data map[string]any) error {
	return w.Events.Record(app.Event{Type: kind, Actor: w.Actor, Target: target, Space: at.Space, Org: at.Org, Data: data})
}

func (del Deletions) deleteQuota(_ context.Context, guid string) error {
	return ignoreNotFound(del.Registry.DeleteQuota(guid))
}

// ApplyToOrgs assigns a quota to orgs.
func (w Tx) ApplyToOrgs(k app.Quota, orgs []string) error {
	guid := k.GUID
	if guid == app.Unlimited().GUID {
		guid = ""
	}
	for _, org := range orgs {
		o, err := w.Registry.UpdateOrg(org, func(o *app.Org) error { o.Quota = guid; return nil })
		if errors.Is(err, app.ErrNotFound) {
			return Refuse("Organizations with guids [\"%s\"] do not exist, or you do not have access to them.", org)
		}
		if err != nil {
			return err
		}
		if err := w.RecordQuota("apply", k, Place{Org: o.GUID}, map[string]any{"organization_guid": o.GUID, "organization_name": o.Name}); err != nil {
			return err
		}
	}
	return nil
}

// ApplyToSpaces assigns a quota to spaces of its org.
func (w Tx) ApplyToSpaces(k app.Quota, spaces []string) error {
	for _, guid := range spaces {
		sp, err := w.Registry.UpdateSpace(guid, func(sp *app.Space) error {
			if sp.Org != k.Org {
				return app.ErrNotFound
			}
			sp.Quota = k.GUID
			return nil
		})
		if errors.Is(err, app.ErrNotFound) {
			return Refuse("Spaces with guids [\"%s\"] do not exist within the organization specified, or you do not have access to them.", guid)
		}
		if err != nil {
			return err
		}
		if err := w.RecordQuota("apply", k, Place{Space: sp.GUID}, map[string]any{"space_guid": sp.GUID, "space_name": sp.Name}); err != nil {
			return err
		}
	}
	return nil
}
