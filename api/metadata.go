package api

import (
	"maps"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
)

// beside is what stands beside a list of apps or routes.
type beside struct {
	spaces  []string // guids; some may be there twice
	domains []string
}

// included are the related resources that the request asks for, as far as who asks sees
// them: a route may be shared from a space that is none of theirs.
func (s *Server) included(asked map[string]bool, b beside, perms access.Permissions) (map[string]any, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	out := map[string]any{}
	in := rest.Include{}
	if asked["space"] {
		in.Spaces = append([]string{}, seen(b.spaces, perms)...)
	}
	if asked["space.organization"] || asked["org"] {
		orgs, err := s.platform.OrgsOfSpaces()
		if err != nil {
			return nil, err
		}
		in.Orgs = []string{}
		for _, space := range b.spaces {
			if perms.SeesOrg(orgs[space]) {
				in.Orgs = append(in.Orgs, orgs[space])
			}
		}
	}
	found, err := s.include(in)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, found)
	if !asked["domain"] {
		return out, nil
	}
	domains := []v3.Domain{}
	for _, guid := range slices.Compact(slices.Sorted(slices.Values(b.domains))) {
		d, err := s.c.Registry.Domain(guid)
		if err != nil {
			return nil, err
		}
		domains = append(domains, s.presentDomain(d, perms))
	}
	out["domains"] = domains
	return out, nil
}
