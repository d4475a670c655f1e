package present

import (
	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// SharedWith are the orgs that a domain is shared with, as far as they are seen.
func SharedWith(d app.Domain, perms access.Permissions) v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, org := range d.SharedWith {
		if perms.SeesOrg(org) {
			out.Data = append(out.Data, v3.GUID{GUID: org})
		}
	}
	return out
}

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
