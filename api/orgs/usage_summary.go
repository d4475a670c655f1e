package orgs

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// usageHandlers answers requests about the usage of orgs and of the platform.
type usageHandlers struct{ *Handlers }

func (h usageHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/info/usage_summary", Needs: access.ReadAll, Hidden: true, Handler: h.getUsage, Shape: rest.Returns[v3.PlaceUsage](200)},
		{Pattern: "GET /v3/organizations/{guid}/usage_summary", Needs: access.Read, Resource: access.Org, Handler: h.getOrgUsage, Shape: rest.Returns[v3.PlaceUsage](200)},
		{Pattern: "GET /v3/spaces/{guid}/usage_summary", Needs: access.Read, Resource: access.Space, Handler: h.getSpaceUsage, Shape: rest.Returns[v3.PlaceUsage](200)},
	}
}

func (h usageHandlers) getOrgUsage(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	u, err := h.Platform.Registry.UsedByOrg(o.GUID)
	if err != nil {
		return nil, err
	}
	spaces, err := h.Platform.Registry.SpacesOf(o.GUID)
	if err != nil {
		return nil, err
	}
	inside := map[string]bool{}
	for _, sp := range spaces {
		inside[sp.GUID] = true
	}
	out, err := h.usageOf(u, func(space string) bool { return inside[space] })
	out.Usage.Domains = &u.Domains
	out.Links = h.usageLinks("organization", "organizations", o.GUID)
	return out, err
}

// getUsage returns the usage of the whole platform.
func (h usageHandlers) getUsage(*http.Request) (any, error) {
	u, err := h.Platform.Registry.UsedByAll()
	if err != nil {
		return nil, err
	}
	out, err := h.usageOf(u, func(string) bool { return true })
	out.Usage.Domains = &u.Domains
	out.Links = v3.Links{"self": {Href: h.Links.Href("v3", "info", "usage_summary")}}
	return out, err
}

func (h usageHandlers) getSpaceUsage(r *http.Request) (any, error) {
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	u, err := h.Platform.Registry.UsedBySpace(sp.GUID)
	if err != nil {
		return nil, err
	}
	out, err := h.usageOf(u, func(space string) bool { return space == sp.GUID })
	out.Links = h.usageLinks("space", "spaces", sp.GUID)
	return out, err
}

func (h usageHandlers) usageLinks(one, many, guid string) v3.Links {
	return v3.Links{"self": {Href: h.Links.Href("v3", many, guid, "usage_summary")}, one: {Href: h.Links.Href("v3", many, guid)}}
}

// usageOf adds the usage of services in the spaces.
func (h usageHandlers) usageOf(u app.Used, inside func(space string) bool) (out v3.PlaceUsage, err error) {
	out.Usage = v3.UsageNumbers{
		StartedInstances: u.Instances, MemoryInMB: u.Memory, Routes: u.Routes, ReservedPorts: u.Ports, PerAppTasks: u.Tasks,
	}
	out.Usage.ServiceInstances, out.Usage.ServiceKeys, err = h.Platform.ServiceUsage(inside)
	return out, err
}
