package present

import (
	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/route"
)

// routeProblem returns why the port of a TCP route cannot be opened.
func (p *Presenter) routeProblem(rt app.Route) string {
	if !rt.TCP() || p.PortTrouble == nil {
		return ""
	}
	return p.PortTrouble(rt.Port)
}

// ShowRoute returns a route as responses show it.
func (p *Presenter) ShowRoute(rt app.Route, domain string) v3.Route {
	self := p.Links.Href("v3", "routes", rt.GUID)
	protocol, port := "http", (*int)(nil)
	if rt.TCP() {
		protocol, port = "tcp", &rt.Port
	}
	return v3.Route{
		GUID: rt.GUID, CreatedAt: v3.At(rt.CreatedAt), UpdatedAt: v3.At(rt.UpdatedAt), Protocol: protocol, Port: port, Problem: p.routeProblem(rt),
		Host: rt.Host, Path: rt.Path, URL: rt.URL(domain), Destinations: p.ShowDestinations(rt).Destinations,
		Relationships: v3.RouteRelationships{Space: v3.To(rt.Space), Domain: v3.To(rt.Domain)},
		Options:       rt.Options, Metadata: rest.PresentMetadata(rt.Metadata),
		Links: v3.Links{
			"self":         {Href: self},
			"space":        {Href: p.Links.Href("v3", "spaces", rt.Space)},
			"domain":       {Href: p.Links.Href("v3", "domains", rt.Domain)},
			"destinations": {Href: self + "/destinations"},

			"shared_spaces": {Href: self + "/relationships/shared_spaces"},
		},
	}
}

// defaultPort is the port of a process that names none.
const defaultPort = 8080

// ShowDestinations returns the destinations of a route as responses show them.
func (p *Presenter) ShowDestinations(rt app.Route) v3.Destinations {
	out := v3.Destinations{Destinations: []v3.Destination{}, Links: v3.Links{
		"self":  {Href: p.Links.Href("v3", "routes", rt.GUID, "destinations")},
		"route": {Href: p.Links.Href("v3", "routes", rt.GUID)},
	}}
	for _, d := range rt.Destinations {
		port := d.Port
		if port == 0 {
			port = defaultPort
		}
		out.Destinations = append(out.Destinations, v3.Destination{
			GUID: d.GUID, CreatedAt: v3.At(rt.CreatedAt), UpdatedAt: v3.At(rt.UpdatedAt),
			App:  v3.DestinationApp{GUID: d.App, Process: v3.DestinationProcess{Type: d.ProcessType}},
			Port: port, Protocol: d.Protocol, Pending: p.pending(d),
		})
	}
	return out
}

// pending reports whether a destination waits for a restart. A failure to find out is
// not an error: the destination is shown anyway.
func (p *Presenter) pending(d app.Destination) bool {
	if d.Port == 0 {
		return false
	}
	ps, err := p.Platform.Registry.Processes(d.App)
	if err != nil {
		p.Platform.Log.Error("cannot read the processes of an app", "app", d.App, "err", err)
		return false
	}
	for _, process := range ps {
		if process.Type == d.ProcessType {
			return route.Pending(d, p.Platform.Processes.Instances(process.GUID))
		}
	}
	return false
}

// SharedWith returns the orgs that a domain is shared with and that the caller can see.
func SharedWith(d app.Domain, perms access.Permissions) v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, org := range d.SharedWith {
		if perms.SeesOrg(org) {
			out.Data = append(out.Data, v3.GUID{GUID: org})
		}
	}
	return out
}

// ShowDomain returns a domain as responses show it.
func (p *Presenter) ShowDomain(d app.Domain, perms access.Permissions) v3.Domain {
	self := p.Links.Href("v3", "domains", d.GUID)
	links := v3.Links{"self": {Href: self}}
	if d.Org != "" {
		links["organization"] = v3.Link{Href: p.Links.Href("v3", "organizations", d.Org)}
		links["shared_organizations"] = v3.Link{Href: self + "/relationships/shared_organizations"}
	}
	protocols, group := []string{"http"}, (*v3.GUID)(nil)
	if d.TCP() {
		protocols, group = []string{"tcp"}, &v3.GUID{GUID: d.RouterGroup}
		links["router_group"] = v3.Link{Href: p.Links.Href("routing", "v1", "router_groups", d.RouterGroup)}
	}
	return v3.Domain{
		GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(d.UpdatedAt), Name: d.Name, Internal: d.Internal,
		SupportedProtocols: protocols, RouterGroup: group, Metadata: rest.PresentMetadata(d.Metadata),
		Relationships: v3.DomainRelationships{Organization: v3.To(d.Org), SharedOrganizations: SharedWith(d, perms)},
		Links:         links,
	}
}
