package present

import (
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// Space is the space that the path names.
func (p *Presenter) Space(r *http.Request) (app.Space, error) {
	sp, err := p.Platform.Registry.Space(r.PathValue("guid"))
	return sp, rest.Missing("Space", err)
}

func (p *Presenter) ShowSpace(sp app.Space) v3.Space {
	self := p.Links.Href("v3", "spaces", sp.GUID)
	return v3.Space{
		GUID: sp.GUID, CreatedAt: v3.At(sp.CreatedAt), UpdatedAt: v3.At(sp.UpdatedAt), Name: sp.Name,
		Relationships: v3.SpaceRelationships{Organization: v3.To(sp.Org), Quota: v3.To(sp.Quota)},
		Metadata:      rest.PresentMetadata(sp.Metadata),
		Links: v3.Links{
			"self":           {Href: self},
			"organization":   {Href: p.Links.Href("v3", "organizations", sp.Org)},
			"features":       {Href: self + "/features"},
			"apply_manifest": {Href: self + "/actions/apply_manifest", Method: http.MethodPost},
		},
	}
}

// Include reads what is to be shown beside, each once. What is gone since is left
// out.
func (p *Presenter) Include(in rest.Include) (map[string]any, error) {
	out := map[string]any{}
	if in.Orgs != nil {
		all, err := rest.PresentEach(in.Orgs, p.Platform.Registry.Org, p.ShowOrg)
		if err != nil {
			return nil, err
		}
		out["organizations"] = all
	}
	if in.Spaces != nil {
		all, err := rest.PresentEach(in.Spaces, p.Platform.Registry.Space, p.ShowSpace)
		if err != nil {
			return nil, err
		}
		out["spaces"] = all
	}
	if in.Users != nil {
		people, err := p.People()
		if err != nil {
			return nil, err
		}
		out["users"], err = rest.PresentEach(in.Users, func(guid string) (platform.Person, error) {
			p, ok := people[guid]
			if !ok {
				return p, auth.ErrNotFound
			}
			return p, nil
		}, p.ShowUser)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
