package orgs

import (
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// isolationSegmentHandlers answers requests about isolation segments.
type isolationSegmentHandlers struct{ *Handlers }

func (h isolationSegmentHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/isolation_segments", Needs: access.Authenticated,
			Handler: h.listSegments, Shape: rest.PageOf[v3.IsolationSegment]("names", "guids", "organization_guids", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/isolation_segments", Needs: access.Administer,
			Handler: h.createSegment, Shape: rest.Returns[v3.IsolationSegment](201).Reads(rest.JSON[v3.ChangeIsolationSegment]()),
		},
		{
			Pattern: "GET /v3/isolation_segments/{guid}", Needs: access.Authenticated, // visible if one of its orgs is
			Handler: h.getSegment, Shape: rest.Returns[v3.IsolationSegment](200),
		},
		{
			Pattern: "PATCH /v3/isolation_segments/{guid}", Needs: access.Administer,
			Handler: h.updateSegment, Shape: rest.Returns[v3.IsolationSegment](200).Reads(rest.JSON[v3.ChangeIsolationSegment]()),
		},
		{Pattern: "DELETE /v3/isolation_segments/{guid}", Needs: access.Administer, Handler: h.deleteSegment, Shape: rest.Empty(204)},
		{
			Pattern: "GET /v3/isolation_segments/{guid}/organizations", Needs: access.Authenticated,
			Handler: h.listSegmentOrgs, Shape: rest.PageOf[v3.Organization]("names", "guids", rest.ParamSelector),
		},
		{
			Pattern: "GET /v3/isolation_segments/{guid}/relationships/organizations", Needs: access.Authenticated,
			Handler: h.getSegmentOrgs, Shape: rest.Returns[v3.RelatedMany](200),
		},
		{
			Pattern: "POST /v3/isolation_segments/{guid}/relationships/organizations", Needs: access.Administer,
			Handler: h.entitleOrgs, Shape: rest.Returns[v3.RelatedMany](200).Reads(rest.JSON[v3.ToMany]()),
		},
		{
			Pattern: "DELETE /v3/isolation_segments/{guid}/relationships/organizations/{org}", Needs: access.Administer,
			Handler: h.disentitleOrg, Shape: rest.Empty(204),
		},
		{
			Pattern: "GET /v3/isolation_segments/{guid}/relationships/spaces", Needs: access.Authenticated,
			Handler: h.getSegmentSpaces, Shape: rest.Returns[v3.RelatedMany](200),
		},
		{
			Pattern: "GET /v3/spaces/{guid}/relationships/isolation_segment", Needs: access.Read, Resource: access.Space,
			Handler: h.getSpaceSegment, Shape: rest.Returns[v3.Related](200),
		},
		{
			Pattern: "PATCH /v3/spaces/{guid}/relationships/isolation_segment", Needs: access.ManageOrg, Resource: access.Space,
			Handler: h.setSpaceSegment, Shape: rest.Returns[v3.Related](200).Reads(rest.JSON[v3.ToOne]()),
		},
		{
			Pattern: "GET /v3/organizations/{guid}/relationships/default_isolation_segment", Needs: access.Read, Resource: access.Org,
			Handler: h.getDefaultSegment, Shape: rest.Returns[v3.Related](200),
		},
		{
			Pattern: "PATCH /v3/organizations/{guid}/relationships/default_isolation_segment", Needs: access.ManageOrg, Resource: access.Org,
			Handler: h.setDefaultSegment, Shape: rest.Returns[v3.Related](200).Reads(rest.JSON[v3.ToOne]()),
		},
	}
}

const nounSegment = "Isolation segment"

// segmentOf returns the segment that the path names, if the caller can see it.
func (h isolationSegmentHandlers) segmentOf(r *http.Request) (app.Segment, access.Permissions, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return app.Segment{}, perms, err
	}
	g, err := h.Platform.Registry.Segment(r.PathValue("guid"))
	if err == nil && !perms.SeesSegment(g) {
		err = app.ErrNotFound
	}
	return g, perms, rest.Missing(nounSegment, err)
}

func (h isolationSegmentHandlers) listSegments(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Segments()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(g app.Segment) bool {
		return !perms.SeesSegment(g) || !q.Matches("names", g.Name) || !q.Matches("guids", g.GUID) || !q.Matches("organization_guids", perms.Among(g.Orgs)...)
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Segment, v3.IsolationSegment]{
		Key: func(g app.Segment) rest.Key {
			return rest.Key{Name: g.Name, Created: g.CreatedAt, Updated: g.UpdatedAt, GUID: g.GUID}
		},
		Present: h.presentSegment,
		Labels:  func(g app.Segment) map[string]string { return g.Metadata.Labels },
	}), nil
}

func (h isolationSegmentHandlers) createSegment(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ChangeIsolationSegment](r)
	if err != nil {
		return nil, err
	}
	g, err := h.Platform.Registry.PutSegment(app.Segment{Name: body.Name, Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentSegment(g)}, nil
}

func (h isolationSegmentHandlers) getSegment(r *http.Request) (any, error) {
	g, _, err := h.segmentOf(r)
	if err != nil {
		return nil, err
	}
	return h.presentSegment(g), nil
}

func (h isolationSegmentHandlers) updateSegment(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ChangeIsolationSegment](r)
	if err != nil {
		return nil, err
	}
	g, err := h.Platform.Registry.UpdateSegment(r.PathValue("guid"), func(g *app.Segment) error {
		if body.Name != "" {
			g.Name = body.Name
		}
		g.Metadata = g.Metadata.Merge(platform.MetadataChange(body.Metadata))
		return nil
	})
	if err != nil {
		return nil, builtIn(rest.Missing(nounSegment, err))
	}
	return h.presentSegment(g), nil
}

func (h isolationSegmentHandlers) deleteSegment(r *http.Request) (any, error) {
	if err := h.Platform.Registry.DeleteSegment(r.PathValue("guid")); err != nil {
		return nil, builtIn(rest.Missing(nounSegment, err))
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// listSegmentOrgs lists the orgs that can use a segment.
func (h isolationSegmentHandlers) listSegmentOrgs(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	g, perms, err := h.segmentOf(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(o app.Org) bool {
		return !slices.Contains(g.Orgs, o.GUID) || !perms.SeesOrg(o.GUID) || !q.Matches("names", o.Name) || !q.Matches("guids", o.GUID)
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Org, v3.Organization]{
		Key: func(o app.Org) rest.Key {
			return rest.Key{Name: o.Name, Created: o.CreatedAt, Updated: o.UpdatedAt, GUID: o.GUID}
		},
		Present: h.Present.ShowOrg,
		Labels:  func(o app.Org) map[string]string { return o.Metadata.Labels },
	}), nil
}

func (h isolationSegmentHandlers) getSegmentOrgs(r *http.Request) (any, error) {
	g, perms, err := h.segmentOf(r)
	if err != nil {
		return nil, err
	}
	return h.entitled(g, perms), nil
}

func (h isolationSegmentHandlers) entitled(g app.Segment, perms access.Permissions) v3.RelatedMany {
	return v3.RelatedMany{Data: rest.ToMany(perms.Among(g.Orgs)).Data, Links: v3.Links{
		"self":    {Href: h.Links.Href("v3", "isolation_segments", g.GUID, "relationships", "organizations")},
		"related": {Href: h.Links.Href("v3", "isolation_segments", g.GUID, "organizations")},
	}}
}

func (h isolationSegmentHandlers) getSegmentSpaces(r *http.Request) (any, error) {
	g, perms, err := h.segmentOf(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	var spaces []string
	for _, sp := range all {
		if sp.Segment == g.GUID && perms.SeesSpace(sp.GUID) {
			spaces = append(spaces, sp.GUID)
		}
	}
	return v3.RelatedMany{Data: rest.ToMany(spaces).Data, Links: v3.Links{
		"self": {Href: h.Links.Href("v3", "isolation_segments", g.GUID, "relationships", "spaces")},
	}}, nil
}

func (h isolationSegmentHandlers) entitleOrgs(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	var g app.Segment
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		for _, org := range rest.GUIDs(&body) {
			if _, err := w.Registry.Org(org); err != nil {
				return orgError(org, err)
			}
		}
		g, err = w.Registry.UpdateSegment(r.PathValue("guid"), func(g *app.Segment) error {
			g.Orgs = append(g.Orgs, rest.GUIDs(&body)...)
			return nil
		})
		return builtIn(rest.Missing(nounSegment, err))
	})
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	return h.entitled(g, perms), err
}

func orgError(guid string, err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return rest.Unprocessable("Unable to entitle organizations [%s] for isolation segment. Ensure the organizations exist and that you have access to them.", guid)
	}
	return err
}

func (h isolationSegmentHandlers) disentitleOrg(r *http.Request) (any, error) {
	err := h.Platform.Registry.Disentitle(r.PathValue("guid"), r.PathValue("org"))
	return rest.Answer{Status: http.StatusNoContent}, builtIn(rest.Missing(nounSegment, err))
}

func (h isolationSegmentHandlers) getSpaceSegment(r *http.Request) (any, error) {
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	return h.related(sp.Segment, "spaces", sp.GUID, "isolation_segment"), nil
}

// related returns the relationship of an org or space to a segment.
func (h isolationSegmentHandlers) related(segment, places, guid, name string) v3.Related {
	out := v3.Related{Data: v3.To(segment).Data, Links: v3.Links{"self": {Href: h.Links.Href("v3", places, guid, "relationships", name)}}}
	if segment != "" {
		out.Links["related"] = v3.Link{Href: h.Links.Href("v3", "isolation_segments", segment)}
	}
	return out
}

// setSpaceSegment assigns a space to a segment that its org can use, or to none.
func (h isolationSegmentHandlers) setSpaceSegment(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToOne](r)
	if err != nil {
		return nil, err
	}
	var sp app.Space
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		sp, err = w.Registry.UpdateSpace(r.PathValue("guid"), func(sp *app.Space) error {
			sp.Segment = body.ID()
			return checkEntitled(w.Registry, sp.Segment, sp.Org)
		})
		return rest.Missing("Space", err)
	})
	if err != nil {
		return nil, err
	}
	return h.related(sp.Segment, "spaces", sp.GUID, "isolation_segment"), nil
}

// checkEntitled refuses a segment that an org is not entitled to.
func checkEntitled(reg *registry.Registry, segment, org string) error {
	if segment == "" {
		return nil
	}
	g, err := reg.Segment(segment)
	if errors.Is(err, app.ErrNotFound) || err == nil && !slices.Contains(g.Orgs, org) {
		return rest.Unprocessable("Unable to assign isolation segment with guid '%s'. Ensure it has been entitled to the organization that this space belongs to.", segment)
	}
	return err
}

func (h isolationSegmentHandlers) getDefaultSegment(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	return h.related(o.Segment, "organizations", o.GUID, "default_isolation_segment"), nil
}

func (h isolationSegmentHandlers) setDefaultSegment(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToOne](r)
	if err != nil {
		return nil, err
	}
	var o app.Org
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		o, err = w.Registry.UpdateOrg(r.PathValue("guid"), func(o *app.Org) error {
			o.Segment = body.ID()
			return checkEntitled(w.Registry, o.Segment, o.GUID)
		})
		return rest.Missing("Organization", err)
	})
	if err != nil {
		return nil, err
	}
	return h.related(o.Segment, "organizations", o.GUID, "default_isolation_segment"), nil
}

func (h isolationSegmentHandlers) presentSegment(g app.Segment) v3.IsolationSegment {
	self := h.Links.Href("v3", "isolation_segments", g.GUID)
	return v3.IsolationSegment{
		GUID: g.GUID, CreatedAt: v3.At(g.CreatedAt), UpdatedAt: v3.At(g.UpdatedAt), Name: g.Name, Metadata: rest.PresentMetadata(g.Metadata),
		Links: v3.Links{"self": {Href: self}, "organizations": {Href: self + "/organizations"}},
	}
}
