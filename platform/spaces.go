package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
)

// OpDeleteSpace is the job that removes a space.
const OpDeleteSpace = "space.delete"

func InvalidOrg(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return Refuse("Invalid organization. Ensure the organization exists and you have access to it.")
	}
	return err
}

// Removal are the arguments of the jobs that remove one thing.
type Removal struct {
	GUID string `json:"guid"`
}

// HandleDeletions tells the jobs how to remove what handlers ask to be removed.
func (p *Platform) HandleDeletions() {
	for operation, do := range map[string]func(ctx context.Context, guid string) error{
		OpDeleteApp:    p.doDeleteApp,
		OpDeleteRoute:  p.doDeleteRoute,
		OpDeleteOrg:    p.DoDeleteOrg,
		OpDeleteSpace:  p.DoDeleteSpace,
		OpDeleteRole:   p.doDeleteRole,
		OpDeleteUser:   p.doDeleteUser,
		OpDeleteDomain: p.doDeleteDomain,

		OpDeletePackage: p.doDeletePackage,
		OpDeleteDroplet: p.doDeleteDroplet,

		OpDeleteOrgQuota:      p.doDeleteQuota,
		OpDeleteSpaceQuota:    p.doDeleteQuota,
		OpDeleteSecurityGroup: p.doDeleteSecurityGroup,
	} {
		p.Jobs.Handle(operation, func(ctx context.Context, j app.Job) ([]string, error) {
			var args Removal
			if err := json.Unmarshal(j.Args, &args); err != nil {
				return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
			}
			return nil, p.ForJob(do(ActingFor(ctx, j.By), args.GUID))
		})
	}
}

// gone forgives that what a job removes is there no more: a job may be done twice.
func gone(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return nil
	}
	return err
}

func (w Tx) RecordSpaceDeletion(sp app.Space) error {
	return w.RecordSpace("audit.space.delete-request", sp, map[string]any{"request": map[string]any{"recursive": true}})
}

// RecordSpace keeps an event about a space.
func (w Tx) RecordSpace(kind string, sp app.Space, data map[string]any) error {
	return w.Events.Record(app.Event{
		Type: kind, Actor: w.Actor, Data: data, Space: sp.GUID, Org: sp.Org,
		Target: app.Target{GUID: sp.GUID, Type: "space", Name: sp.Name},
	})
}

// OrgsOfSpaces gives the org's guid by the space's.
func (p *Platform) OrgsOfSpaces() (map[string]string, error) {
	all, err := p.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	orgs := make(map[string]string, len(all))
	for _, sp := range all {
		orgs[sp.GUID] = sp.Org
	}
	return orgs, nil
}
