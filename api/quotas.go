package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// unlimited is the quota of every org: one machine shares out nothing.
var unlimited = v3.Quota{
	GUID: "6b3c4f5e-2a1d-4c0b-9e8f-7d6a5b4c3d2e", Name: "unlimited",
	Services: v3.ServiceLimits{PaidServicesAllowed: true},
	Metadata: v3.NoMetadata(),
}

func (s *Server) listQuotas(r *http.Request) (any, error) {
	q, err := readQuery(r, "names", "guids", "organization_guids")
	if err != nil {
		return nil, err
	}
	see, err := s.sight(r.Context())
	if err != nil {
		return nil, err
	}
	shown, err := s.quotaFor(see)
	if err != nil {
		return nil, err
	}
	var found []v3.Quota
	if q.lets("names", shown.Name) && q.lets("guids", shown.GUID) && q.lets("organization_guids", guidsOf(shown)...) {
		found = append(found, shown)
	}
	return list(s, r, q, found, look[v3.Quota, v3.Quota]{
		key:     func(k v3.Quota) key { return key{name: k.Name, guid: k.GUID} },
		present: func(k v3.Quota) v3.Quota { return k },
	}), nil
}

func (s *Server) getQuota(r *http.Request) (any, error) {
	if r.PathValue("guid") != unlimited.GUID {
		return nil, notFound("Organization quota")
	}
	see, err := s.sight(r.Context())
	if err != nil {
		return nil, err
	}
	return s.quotaFor(see)
}

// quotaFor is the quota with the orgs that one sees.
func (s *Server) quotaFor(see sight) (v3.Quota, error) {
	orgs, err := s.c.Registry.Orgs()
	if err != nil {
		return v3.Quota{}, err
	}
	out := unlimited
	out.Relationships.Organizations.Data = []v3.GUID{}
	out.Links = v3.Links{"self": {Href: s.href("v3", "organization_quotas", unlimited.GUID)}}
	for _, o := range orgs {
		if see.org(o.GUID) {
			out.Relationships.Organizations.Data = append(out.Relationships.Organizations.Data, v3.GUID{GUID: o.GUID})
		}
	}
	return out, nil
}

func guidsOf(k v3.Quota) []string {
	var out []string
	for _, d := range k.Relationships.Organizations.Data {
		out = append(out, d.GUID)
	}
	return out
}

// none lists what clients ask for whenever they show an org, a space, an app or a
// route, and what there is none of.
func (s *Server) none(filters ...string) handler {
	return func(r *http.Request) (any, error) {
		q, err := readQuery(r, append(filters, paramSelector)...)
		if err != nil {
			return nil, err
		}
		return list(s, r, q, nil, look[struct{}, struct{}]{}), nil
	}
}

// absences are the lists that are always empty.
func (s *Server) absences() map[string]handler {
	return map[string]handler{
		"GET /v3/space_quotas": s.none("names", "guids", "space_guids", "organization_guids"),
		"GET /v3/security_groups": s.none("names", "guids", "running_space_guids", "staging_space_guids",
			"globally_enabled_running", "globally_enabled_staging"),
		"GET /v3/isolation_segments":                    s.none("names", "guids", "organization_guids"),
		"GET /v3/spaces/{guid}/running_security_groups": s.none("names", "guids"),
		"GET /v3/spaces/{guid}/staging_security_groups": s.none("names", "guids"),

		"GET /v3/organizations/{guid}/relationships/default_isolation_segment": s.getDefaultSegment,
	}
}

// getDefaultSegment is none: there is one machine.
func (s *Server) getDefaultSegment(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	return v3.Related{Links: v3.Links{
		"self": {Href: s.href("v3", "organizations", o.GUID, "relationships", "default_isolation_segment")},
	}}, nil
}
