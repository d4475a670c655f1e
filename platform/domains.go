package platform

import (
	"context"
	"errors"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
)

// OpDeleteDomain is the job that removes a domain.
const OpDeleteDomain = "domain.delete"

func (p *Platform) doDeleteDomain(_ context.Context, guid string) error {
	if err := p.Registry.DeleteDomain(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// Unused wants no routes of an org in a domain.
func Unused(reg *registry.Registry, domain, org string) error {
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

// DomainNames gives the name by the guid.
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
