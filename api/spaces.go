package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

func (s *Server) listOrgs(r *http.Request) (any, error) {
	q, err := readQuery(r, "names", "guids")
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	var found []app.Org
	for _, o := range all {
		if q.lets("names", o.Name) && q.lets("guids", o.GUID) {
			found = append(found, o)
		}
	}
	return list(s, r, q, found, look[app.Org, v3.Organization]{
		key: func(o app.Org) key { return key{o.Name, o.CreatedAt, o.UpdatedAt, o.GUID} },
		present: func(o app.Org) v3.Organization {
			return v3.Organization{
				GUID: o.GUID, CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt), Name: o.Name,
				Metadata: v3.NoMetadata(), Links: v3.Links{"self": {Href: s.href("v3", "organizations", o.GUID)}},
			}
		},
	}), nil
}

func (s *Server) listSpaces(r *http.Request) (any, error) {
	q, err := readQuery(r, "names", "guids", "organization_guids")
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	var found []app.Space
	for _, sp := range all {
		if q.lets("names", sp.Name) && q.lets("guids", sp.GUID) && q.lets("organization_guids", sp.Org) {
			found = append(found, sp)
		}
	}
	return list(s, r, q, found, look[app.Space, v3.Space]{
		key: func(sp app.Space) key { return key{sp.Name, sp.CreatedAt, sp.UpdatedAt, sp.GUID} },
		present: func(sp app.Space) v3.Space {
			self := s.href("v3", "spaces", sp.GUID)
			return v3.Space{
				GUID: sp.GUID, CreatedAt: v3.At(sp.CreatedAt), UpdatedAt: v3.At(sp.UpdatedAt), Name: sp.Name,
				Relationships: v3.SpaceRelationships{Organization: v3.To(sp.Org)},
				Metadata:      v3.NoMetadata(),
				Links: v3.Links{
					"self":           {Href: self},
					"apply_manifest": {Href: self + "/actions/apply_manifest", Method: http.MethodPost},
				},
			}
		},
	}), nil
}

// orgsOfSpaces gives the org's guid by the space's.
func (s *Server) orgsOfSpaces() (map[string]string, error) {
	all, err := s.c.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	orgs := make(map[string]string, len(all))
	for _, sp := range all {
		orgs[sp.GUID] = sp.Org
	}
	return orgs, nil
}
