package present

import (
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// Org is the org that the path names.
func (p *Presenter) Org(r *http.Request) (app.Org, error) {
	o, err := p.Platform.Registry.Org(r.PathValue("guid"))
	return o, rest.Missing("Organization", err)
}

func (p *Presenter) ShowOrg(o app.Org) v3.Organization {
	at := func(elem ...string) v3.Link {
		return v3.Link{Href: p.Links.Href(append([]string{"v3", "organizations", o.GUID}, elem...)...)}
	}
	return v3.Organization{
		GUID: o.GUID, CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt), Name: o.Name, Suspended: o.Suspended,
		Relationships: v3.OrganizationRelationships{Quota: v3.To(QuotaOf(o))},
		Metadata:      rest.PresentMetadata(o.Metadata),
		Links:         v3.Links{"self": at(), "domains": at("domains"), "default_domain": at("domains", "default")},
	}
}
