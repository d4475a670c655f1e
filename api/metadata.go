package api

import (
	"maps"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// presentMetadata shows labels and annotations; neither is null.
func presentMetadata(m app.Metadata) v3.Metadata {
	out := v3.NoMetadata()
	for k, v := range m.Labels {
		out.Labels[k] = &v
	}
	for k, v := range m.Annotations {
		out.Annotations[k] = &v
	}
	return out
}

// metadataChange is what a body says of labels and annotations; null takes a key
// away, what is absent stays.
func metadataChange(m *v3.Metadata) app.MetadataChange {
	if m == nil {
		return app.MetadataChange{}
	}
	return app.MetadataChange{Labels: m.Labels, Annotations: m.Annotations}
}

// beside is what stands beside a list of apps or routes.
type beside struct {
	spaces  []string // guids; some may be there twice
	domains []string
}

// included are the related resources that the request asks for, as far as who asks sees
// them: a route may be shared from a space that is none of theirs.
func (s *Server) included(asked map[string]bool, b beside, perms permissions) (map[string]any, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	out := map[string]any{}
	in := include{}
	if asked["space"] {
		in.spaces = append([]string{}, seen(b.spaces, perms)...)
	}
	if asked["space.organization"] || asked["org"] {
		orgs, err := s.orgsOfSpaces()
		if err != nil {
			return nil, err
		}
		in.orgs = []string{}
		for _, space := range b.spaces {
			if perms.org(orgs[space]) {
				in.orgs = append(in.orgs, orgs[space])
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
