package present

import (
	"maps"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
)

// Related has the related resources of a list of apps or routes.
type Related struct {
	Spaces  []string // guids, possibly with duplicates
	Domains []string
}

// Included returns the related resources that the request asks for and that the caller
// can see. A route can be shared from a space that the caller cannot see.
func (p *Presenter) Included(asked map[string]bool, b Related, perms access.Permissions) (map[string]any, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	out := map[string]any{}
	in := rest.Include{}
	if asked["space"] {
		in.Spaces = append([]string{}, Visible(b.Spaces, perms)...)
	}
	if asked["space.organization"] || asked["org"] {
		orgs, err := p.Platform.OrgsOfSpaces()
		if err != nil {
			return nil, err
		}
		in.Orgs = []string{}
		for _, space := range b.Spaces {
			if perms.SeesOrg(orgs[space]) {
				in.Orgs = append(in.Orgs, orgs[space])
			}
		}
	}
	found, err := p.Include(in)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, found)
	if !asked["domain"] {
		return out, nil
	}
	domains := []v3.Domain{}
	for _, guid := range slices.Compact(slices.Sorted(slices.Values(b.Domains))) {
		d, err := p.Platform.Registry.Domain(guid)
		if err != nil {
			return nil, err
		}
		domains = append(domains, p.ShowDomain(d, perms))
	}
	out["domains"] = domains
	return out, nil
}
