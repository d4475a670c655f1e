package present

import (
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// routeProblem says why nothing answers on the port of a TCP route.
func (p *Presenter) routeProblem(rt app.Route) string {
	if !rt.TCP() || p.PortTrouble == nil {
		return ""
	}
	return p.PortTrouble(rt.Port)
}

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
