package main

import (
	"log/slog"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
)

// appQueries answers the queries of builds, logs and drains about apps.
type appQueries struct {
	registry *registry.Registry
	log      *slog.Logger
}

// name returns the name of an app, or its guid if it was deleted.
func (q appQueries) name(guid string) string {
	a, err := q.registry.App(guid)
	if err != nil {
		return guid
	}
	return a.Name
}

// host returns the host name of an app in the lines of its drains.
func (q appQueries) host(guid string) string {
	a, err := q.registry.App(guid)
	if err != nil {
		return guid
	}
	space, serr := q.registry.Space(a.Space)
	org, oerr := q.registry.Org(space.Org)
	if serr != nil || oerr != nil {
		return a.Name
	}
	return org.Name + "." + space.Name + "." + a.Name
}

// buildpacks returns the names of the buildpacks of all apps.
func (q appQueries) buildpacks() ([]string, error) {
	apps, err := q.registry.Apps()
	var all []string
	for _, a := range apps {
		all = append(all, a.Buildpacks...)
	}
	return all, err
}

// stagingEnv returns the variables that a user has set for an app, and those of the
// staging environment group.
func (q appQueries) stagingEnv(guid string) (map[string]string, error) {
	a, err := q.registry.App(guid)
	if err != nil {
		return nil, err
	}
	return q.registry.WithGroup(app.StagingGroup, a.Env)
}

// dropletsInUse returns the droplets that instances and tasks start from, or nil if
// they cannot be read.
func (q appQueries) dropletsInUse(tx *store.Tx) map[string]bool {
	used, err := q.registry.With(tx).DropletsInUse()
	if err != nil {
		q.log.Error("cannot list the droplets in use", "err", err)
		return nil
	}
	return used
}

// accountEvents records changes of accounts as audit events.
type accountEvents struct {
	events *registry.Events
	log    *slog.Logger
}

// record stores which principal changed which account.
func (r accountEvents) record(kind string, who auth.Principal, target, name string) {
	err := r.events.Record(app.Event{
		Type: kind, Actor: access.Actor(who),
		Target: app.Target{GUID: target, Type: "account", Name: name},
	})
	if err != nil {
		r.log.Error("cannot store the audit event of an account change", "kind", kind, "account", name, "err", err)
	}
}
