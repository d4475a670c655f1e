package api

import (
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
)

// isolationSegmentsEndpoints are the endpoints of this file.
func (s *Server) isolationSegmentsEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/isolation_segments", Needs: authenticated,
			Handler: s.listSegments, Shape: pageOf[v3.IsolationSegment]("names", "guids", "organization_guids", paramSelector),
		},
		{
			Pattern: "POST /v3/isolation_segments", Needs: toAdminister,
			Handler: s.createSegment, Shape: gives[v3.IsolationSegment](201).from(jsonOf[v3.ChangeIsolationSegment]()),
		},
		{
			Pattern: "GET /v3/isolation_segments/{guid}", Needs: authenticated, // those of orgs that one sees
			Handler: s.getSegment, Shape: gives[v3.IsolationSegment](200),
		},
		{
			Pattern: "PATCH /v3/isolation_segments/{guid}", Needs: toAdminister,
			Handler: s.updateSegment, Shape: gives[v3.IsolationSegment](200).from(jsonOf[v3.ChangeIsolationSegment]()),
		},
		{Pattern: "DELETE /v3/isolation_segments/{guid}", Needs: toAdminister, Handler: s.deleteSegment, Shape: ends(204)},
		{
			Pattern: "GET /v3/isolation_segments/{guid}/organizations", Needs: authenticated,
			Handler: s.listSegmentOrgs, Shape: pageOf[v3.Organization]("names", "guids", paramSelector),
		},
		{
			Pattern: "GET /v3/isolation_segments/{guid}/relationships/organizations", Needs: authenticated,
			Handler: s.getSegmentOrgs, Shape: gives[v3.RelatedMany](200),
		},
		{
			Pattern: "POST /v3/isolation_segments/{guid}/relationships/organizations", Needs: toAdminister,
			Handler: s.entitleOrgs, Shape: gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
		},
		{
			Pattern: "DELETE /v3/isolation_segments/{guid}/relationships/organizations/{org}", Needs: toAdminister,
			Handler: s.disentitleOrg, Shape: ends(204),
		},
		{
			Pattern: "GET /v3/isolation_segments/{guid}/relationships/spaces", Needs: authenticated,
			Handler: s.getSegmentSpaces, Shape: gives[v3.RelatedMany](200),
		},
		{
			Pattern: "GET /v3/spaces/{guid}/relationships/isolation_segment", Needs: toRead, Resource: aSpace,
			Handler: s.getSpaceSegment, Shape: gives[v3.Related](200),
		},
		{
			Pattern: "PATCH /v3/spaces/{guid}/relationships/isolation_segment", Needs: toManageOrg, Resource: aSpace,
			Handler: s.setSpaceSegment, Shape: gives[v3.Related](200).from(jsonOf[v3.ToOne]()),
		},
		{
			Pattern: "GET /v3/organizations/{guid}/relationships/default_isolation_segment", Needs: toRead, Resource: anOrg,
			Handler: s.getDefaultSegment, Shape: gives[v3.Related](200),
		},
		{
			Pattern: "PATCH /v3/organizations/{guid}/relationships/default_isolation_segment", Needs: toManageOrg, Resource: anOrg,
			Handler: s.setDefaultSegment, Shape: gives[v3.Related](200).from(jsonOf[v3.ToOne]()),
		},
	}
}

const nounSegment = "Isolation segment"

// seesSegment tells whether a segment is seen: one that an org may use that is.
func (perms permissions) seesSegment(g app.Segment) bool {
	return perms.all || slices.ContainsFunc(g.Orgs, perms.org)
}

// segmentOf is the segment that the path names, if who asks sees it.
func (s *Server) segmentOf(r *http.Request) (app.Segment, permissions, error) {
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return app.Segment{}, perms, err
	}
	g, err := s.c.Registry.Segment(r.PathValue("guid"))
	if err == nil && !perms.seesSegment(g) {
		err = app.ErrNotFound
	}
	return g, perms, missing(nounSegment, err)
}

func (s *Server) listSegments(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Segments()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(g app.Segment) bool {
		return !perms.seesSegment(g) || !q.lets("names", g.Name) || !q.lets("guids", g.GUID) || !q.lets("organization_guids", perms.among(g.Orgs)...)
	})
	return list(s.links, r, q, all, look[app.Segment, v3.IsolationSegment]{
		key:     func(g app.Segment) key { return key{g.Name, g.CreatedAt, g.UpdatedAt, g.GUID} },
		present: s.presentSegment,
		labels:  func(g app.Segment) map[string]string { return g.Metadata.Labels },
	}), nil
}

func (s *Server) createSegment(r *http.Request) (any, error) {
	body, err := decode[v3.ChangeIsolationSegment](r)
	if err != nil {
		return nil, err
	}
	g, err := s.c.Registry.PutSegment(app.Segment{Name: body.Name, Metadata: app.Metadata{}.Merge(metadataChange(body.Metadata))})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusCreated, body: s.presentSegment(g)}, nil
}

func (s *Server) getSegment(r *http.Request) (any, error) {
	g, _, err := s.segmentOf(r)
	if err != nil {
		return nil, err
	}
	return s.presentSegment(g), nil
}

func (s *Server) updateSegment(r *http.Request) (any, error) {
	body, err := decode[v3.ChangeIsolationSegment](r)
	if err != nil {
		return nil, err
	}
	g, err := s.c.Registry.UpdateSegment(r.PathValue("guid"), func(g *app.Segment) error {
		if body.Name != "" {
			g.Name = body.Name
		}
		g.Metadata = g.Metadata.Merge(metadataChange(body.Metadata))
		return nil
	})
	if err != nil {
		return nil, builtIn(missing(nounSegment, err))
	}
	return s.presentSegment(g), nil
}

func (s *Server) deleteSegment(r *http.Request) (any, error) {
	if err := s.c.Registry.DeleteSegment(r.PathValue("guid")); err != nil {
		return nil, builtIn(missing(nounSegment, err))
	}
	return answer{status: http.StatusNoContent}, nil
}

// listSegmentOrgs lists the orgs that may use a segment.
func (s *Server) listSegmentOrgs(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	g, perms, err := s.segmentOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(o app.Org) bool {
		return !slices.Contains(g.Orgs, o.GUID) || !perms.org(o.GUID) || !q.lets("names", o.Name) || !q.lets("guids", o.GUID)
	})
	return list(s.links, r, q, all, look[app.Org, v3.Organization]{
		key:     func(o app.Org) key { return key{o.Name, o.CreatedAt, o.UpdatedAt, o.GUID} },
		present: s.presentOrg,
		labels:  func(o app.Org) map[string]string { return o.Metadata.Labels },
	}), nil
}

func (s *Server) getSegmentOrgs(r *http.Request) (any, error) {
	g, perms, err := s.segmentOf(r)
	if err != nil {
		return nil, err
	}
	return s.entitled(g, perms), nil
}

// among are those of the orgs that are seen.
func (perms permissions) among(orgs []string) []string {
	return slices.DeleteFunc(slices.Clone(orgs), func(guid string) bool { return !perms.org(guid) })
}

func (s *Server) entitled(g app.Segment, perms permissions) v3.RelatedMany {
	return v3.RelatedMany{Data: toMany(perms.among(g.Orgs)).Data, Links: v3.Links{
		"self":    {Href: s.links.Href("v3", "isolation_segments", g.GUID, "relationships", "organizations")},
		"related": {Href: s.links.Href("v3", "isolation_segments", g.GUID, "organizations")},
	}}
}

func (s *Server) getSegmentSpaces(r *http.Request) (any, error) {
	g, perms, err := s.segmentOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	var spaces []string
	for _, sp := range all {
		if sp.Segment == g.GUID && perms.space(sp.GUID) {
			spaces = append(spaces, sp.GUID)
		}
	}
	return v3.RelatedMany{Data: toMany(spaces).Data, Links: v3.Links{
		"self": {Href: s.links.Href("v3", "isolation_segments", g.GUID, "relationships", "spaces")},
	}}, nil
}

func (s *Server) entitleOrgs(r *http.Request) (any, error) {
	body, err := decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	var g app.Segment
	err = s.change(r.Context(), func(w transaction) error {
		for _, org := range guids(&body) {
			if _, err := w.registry.Org(org); err != nil {
				return noOrg(org, err)
			}
		}
		g, err = w.registry.UpdateSegment(r.PathValue("guid"), func(g *app.Segment) error {
			g.Orgs = append(g.Orgs, guids(&body)...)
			return nil
		})
		return builtIn(missing(nounSegment, err))
	})
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	return s.entitled(g, perms), err
}

func noOrg(guid string, err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return unprocessable("Unable to entitle organizations [%s] for isolation segment. Ensure the organizations exist and that you have access to them.", guid)
	}
	return err
}

func (s *Server) disentitleOrg(r *http.Request) (any, error) {
	err := s.c.Registry.Disentitle(r.PathValue("guid"), r.PathValue("org"))
	return answer{status: http.StatusNoContent}, builtIn(missing(nounSegment, err))
}

func (s *Server) getSpaceSegment(r *http.Request) (any, error) {
	sp, err := s.spaceOf(r)
	if err != nil {
		return nil, err
	}
	return s.related(sp.Segment, "spaces", sp.GUID, "isolation_segment"), nil
}

// related is the relationship of a place to a segment.
func (s *Server) related(segment, places, guid, name string) v3.Related {
	out := v3.Related{Data: v3.To(segment).Data, Links: v3.Links{"self": {Href: s.links.Href("v3", places, guid, "relationships", name)}}}
	if segment != "" {
		out.Links["related"] = v3.Link{Href: s.links.Href("v3", "isolation_segments", segment)}
	}
	return out
}

// setSpaceSegment assigns a space to a segment that its org may use, or to none.
func (s *Server) setSpaceSegment(r *http.Request) (any, error) {
	body, err := decode[v3.ToOne](r)
	if err != nil {
		return nil, err
	}
	var sp app.Space
	err = s.change(r.Context(), func(w transaction) error {
		sp, err = w.registry.UpdateSpace(r.PathValue("guid"), func(sp *app.Space) error {
			sp.Segment = body.ID()
			return mayUse(w.registry, sp.Segment, sp.Org)
		})
		return missing("Space", err)
	})
	if err != nil {
		return nil, err
	}
	return s.related(sp.Segment, "spaces", sp.GUID, "isolation_segment"), nil
}

// mayUse refuses a segment that an org is not entitled to.
func mayUse(reg *registry.Registry, segment, org string) error {
	if segment == "" {
		return nil
	}
	g, err := reg.Segment(segment)
	if errors.Is(err, app.ErrNotFound) || err == nil && !slices.Contains(g.Orgs, org) {
		return unprocessable("Unable to assign isolation segment with guid '%s'. Ensure it has been entitled to the organization that this space belongs to.", segment)
	}
	return err
}

func (s *Server) getDefaultSegment(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	return s.related(o.Segment, "organizations", o.GUID, "default_isolation_segment"), nil
}

func (s *Server) setDefaultSegment(r *http.Request) (any, error) {
	body, err := decode[v3.ToOne](r)
	if err != nil {
		return nil, err
	}
	var o app.Org
	err = s.change(r.Context(), func(w transaction) error {
		o, err = w.registry.UpdateOrg(r.PathValue("guid"), func(o *app.Org) error {
			o.Segment = body.ID()
			return mayUse(w.registry, o.Segment, o.GUID)
		})
		return missing("Organization", err)
	})
	if err != nil {
		return nil, err
	}
	return s.related(o.Segment, "organizations", o.GUID, "default_isolation_segment"), nil
}

func (s *Server) presentSegment(g app.Segment) v3.IsolationSegment {
	self := s.links.Href("v3", "isolation_segments", g.GUID)
	return v3.IsolationSegment{
		GUID: g.GUID, CreatedAt: v3.At(g.CreatedAt), UpdatedAt: v3.At(g.UpdatedAt), Name: g.Name, Metadata: presentMetadata(g.Metadata),
		Links: v3.Links{"self": {Href: self}, "organizations": {Href: self + "/organizations"}},
	}
}
