package platform

import "github.com/dewrun/dew/app"

// OpDeleteOrg is the job that removes an org.
const OpDeleteOrg = "organization.delete"

// RecordOrg keeps an event about an org.
func (w Tx) RecordOrg(kind string, o app.Org, data map[string]any) error {
	return w.Events.Record(app.Event{
		Type: kind, Actor: w.Actor, Data: data, Org: o.GUID,
		Target: app.Target{GUID: o.GUID, Type: "organization", Name: o.Name},
	})
}
