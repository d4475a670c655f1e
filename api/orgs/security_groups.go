package orgs

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// securityGroupHandlers answers requests about security groups.
type securityGroupHandlers struct{ *Handlers }

func (h securityGroupHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/security_groups", Needs: access.Authenticated,
			Handler: h.listSecurityGroups, Shape: rest.PageOf[v3.SecurityGroup]("names", "guids", "running_space_guids", "staging_space_guids", "globally_enabled_running", "globally_enabled_staging"),
		},
		{
			Pattern: "POST /v3/security_groups", Needs: access.Administer,
			Handler: h.createSecurityGroup, Shape: rest.Returns[v3.SecurityGroup](201).Reads(rest.JSON[v3.ChangeSecurityGroup]()),
		},
		{
			Pattern: "GET /v3/security_groups/{guid}", Needs: access.Authenticated, // visible if one of its spaces is, or if it is global
			Handler: h.getSecurityGroup, Shape: rest.Returns[v3.SecurityGroup](200),
		},
		{
			Pattern: "PATCH /v3/security_groups/{guid}", Needs: access.Administer, Resource: h.securityGroupResource(),
			Handler: h.updateSecurityGroup, Shape: rest.Returns[v3.SecurityGroup](200).Reads(rest.JSON[v3.ChangeSecurityGroup]()),
		},
		{Pattern: "DELETE /v3/security_groups/{guid}", Needs: access.Administer, Resource: h.securityGroupResource(), Handler: h.deleteSecurityGroup, Shape: rest.StartsJob()},
		{
			Pattern: "GET /v3/spaces/{guid}/running_security_groups", Needs: access.Read, Resource: access.Space,
			Handler: h.listSpaceGroups(runsOf), Shape: rest.PageOf[v3.SecurityGroup]("names", "guids"),
		},
		{
			Pattern: "GET /v3/spaces/{guid}/staging_security_groups", Needs: access.Read, Resource: access.Space,
			Handler: h.listSpaceGroups(stagesOf), Shape: rest.PageOf[v3.SecurityGroup]("names", "guids"),
		},
		{
			Pattern: "POST /v3/security_groups/{guid}/relationships/running_spaces", Needs: access.Authenticated, // the body names the spaces
			Handler: h.bindGroup(runsOf), Shape: rest.Returns[v3.RelatedMany](200).Reads(rest.JSON[v3.ToMany]()),
		},
		{
			Pattern: "POST /v3/security_groups/{guid}/relationships/staging_spaces", Needs: access.Authenticated,
			Handler: h.bindGroup(stagesOf), Shape: rest.Returns[v3.RelatedMany](200).Reads(rest.JSON[v3.ToMany]()),
		},
		{
			Pattern: "DELETE /v3/security_groups/{guid}/relationships/running_spaces/{space}", Needs: access.Authenticated,
			Handler: h.unbindGroup(runsOf), Shape: rest.Empty(204),
		},
		{
			Pattern: "DELETE /v3/security_groups/{guid}/relationships/staging_spaces/{space}", Needs: access.Authenticated,
			Handler: h.unbindGroup(stagesOf), Shape: rest.Empty(204),
		},
	}
}

const nounSecurityGroup = "Security group"

// side is one of the two kinds of containers that a group applies to: running and
// staging.
type side struct {
	name   string
	spaces func(g *app.SecurityGroup) *[]string
	global func(g app.SecurityGroup) bool
}

var (
	runsOf = side{
		"running_spaces", func(g *app.SecurityGroup) *[]string { return &g.Runs }, func(g app.SecurityGroup) bool { return g.Running },
	}
	stagesOf = side{
		"staging_spaces", func(g *app.SecurityGroup) *[]string { return &g.Stages }, func(g app.SecurityGroup) bool { return g.Staging },
	}
)

// groupOf returns the group that the path names, if the caller can see it.
func (h securityGroupHandlers) groupOf(r *http.Request) (app.SecurityGroup, access.Permissions, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return app.SecurityGroup{}, perms, err
	}
	g, err := h.Platform.Registry.SecurityGroup(r.PathValue("guid"))
	if err == nil && !perms.SeesGroup(g) {
		err = app.ErrNotFound
	}
	return g, perms, rest.Missing(nounSecurityGroup, err)
}

func (h securityGroupHandlers) listSecurityGroups(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	return h.pageOfGroups(r, q, func(g app.SecurityGroup) bool {
		return q.Matches("globally_enabled_running", strconv.FormatBool(g.Running)) && q.Matches("globally_enabled_staging", strconv.FormatBool(g.Staging)) &&
			q.Matches("running_space_guids", present.Visible(g.Runs, perms)...) && q.Matches("staging_space_guids", present.Visible(g.Stages, perms)...)
	})
}

// listSpaceGroups lists the groups of a space, including those for all spaces.
func (h securityGroupHandlers) listSpaceGroups(of side) rest.Handler {
	return func(r *http.Request) (any, error) {
		q, err := rest.ReadQuery(r)
		if err != nil {
			return nil, err
		}
		sp, err := h.Present.Space(r)
		if err != nil {
			return nil, err
		}
		return h.pageOfGroups(r, q, func(g app.SecurityGroup) bool { return of.global(g) || slices.Contains(*of.spaces(&g), sp.GUID) })
	}
}

func (h securityGroupHandlers) pageOfGroups(r *http.Request, q rest.Query, among func(g app.SecurityGroup) bool) (any, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.SecurityGroups()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(g app.SecurityGroup) bool {
		return !perms.SeesGroup(g) || !q.Matches("names", g.Name) || !q.Matches("guids", g.GUID) || !among(g)
	})
	return rest.List(h.Links, r, q, all, rest.View[app.SecurityGroup, v3.SecurityGroup]{
		Key: func(g app.SecurityGroup) rest.Key {
			return rest.Key{Name: g.Name, Created: g.CreatedAt, Updated: g.UpdatedAt, GUID: g.GUID}
		},
		Present: func(g app.SecurityGroup) v3.SecurityGroup { return h.presentGroup(g, perms) },
	}), nil
}

func (h securityGroupHandlers) createSecurityGroup(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ChangeSecurityGroup](r)
	if err != nil {
		return nil, err
	}
	var g app.SecurityGroup
	changeGroup(&g, body)
	if rel := body.Relationships; rel != nil {
		g.Runs, g.Stages = rest.GUIDs(rel.RunningSpaces), rest.GUIDs(rel.StagingSpaces)
	}
	if g, err = h.Platform.Registry.PutSecurityGroup(g); err != nil {
		return nil, spacesError(err)
	}
	perms, err := h.Access.Permissions(r.Context())
	return rest.Answer{Status: http.StatusCreated, Body: h.presentGroup(g, perms)}, err
}

// spacesError returns Cloud Foundry's error if one of the spaces does not exist.
func spacesError(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return rest.Unprocessable("Spaces do not exist, or you do not have access to them.")
	}
	return err
}

func changeGroup(g *app.SecurityGroup, b v3.ChangeSecurityGroup) {
	if b.Name != "" {
		g.Name = b.Name
	}
	if b.Rules != nil {
		g.Rules = nil
		for _, rule := range *b.Rules {
			g.Rules = append(g.Rules, app.SecurityRule(rule))
		}
	}
	if on := b.GloballyEnabled; on != nil {
		if on.Running != nil {
			g.Running = *on.Running
		}
		if on.Staging != nil {
			g.Staging = *on.Staging
		}
	}
}

func (h securityGroupHandlers) getSecurityGroup(r *http.Request) (any, error) {
	g, perms, err := h.groupOf(r)
	if err != nil {
		return nil, err
	}
	return h.presentGroup(g, perms), nil
}

func (h securityGroupHandlers) updateSecurityGroup(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ChangeSecurityGroup](r)
	if err != nil {
		return nil, err
	}
	if body.Relationships != nil {
		return nil, rest.Unprocessable("Unknown field(s): 'relationships'")
	}
	g, err := h.Platform.Registry.UpdateSecurityGroup(r.PathValue("guid"), func(g *app.SecurityGroup) error {
		changeGroup(g, body)
		return nil
	})
	if err != nil {
		return nil, rest.Missing(nounSecurityGroup, err)
	}
	perms, err := h.Access.Permissions(r.Context())
	return h.presentGroup(g, perms), err
}

func (h securityGroupHandlers) deleteSecurityGroup(r *http.Request) (any, error) {
	g, err := h.Platform.Registry.SecurityGroup(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing(nounSecurityGroup, err)
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteSecurityGroup, platform.Removal{GUID: g.GUID})
}

// bindGroup binds a group to spaces that the caller manages.
func (h securityGroupHandlers) bindGroup(of side) rest.Handler {
	return func(r *http.Request) (any, error) {
		body, err := rest.Decode[v3.ToMany](r)
		if err != nil {
			return nil, err
		}
		if _, _, err := h.groupOf(r); err != nil {
			return nil, err
		}
		for _, space := range rest.GUIDs(&body) {
			if err := h.Access.Require(r.Context(), access.Manage, space); err != nil {
				return nil, spacesError(err)
			}
		}
		g, err := h.Platform.Registry.UpdateSecurityGroup(r.PathValue("guid"), func(g *app.SecurityGroup) error {
			*of.spaces(g) = append(*of.spaces(g), rest.GUIDs(&body)...)
			return nil
		})
		if err != nil {
			return nil, spacesError(err)
		}
		perms, err := h.Access.Permissions(r.Context())
		return v3.RelatedMany{
			Data:  rest.ToMany(present.Visible(*of.spaces(&g), perms)).Data,
			Links: v3.Links{"self": {Href: h.Links.Href("v3", "security_groups", g.GUID, "relationships", of.name)}},
		}, err
	}
}

// unbindGroup unbinds a group from a space.
func (h securityGroupHandlers) unbindGroup(of side) rest.Handler {
	return func(r *http.Request) (any, error) {
		if _, _, err := h.groupOf(r); err != nil {
			return nil, err
		}
		space := r.PathValue("space")
		unbound := rest.Unprocessable("Unable to unbind security group from space with guid '%s'. Ensure the space is bound to this security group.", space)
		if err := h.Access.Require(r.Context(), access.Manage, space); err != nil {
			if errors.Is(err, app.ErrNotFound) {
				err = unbound
			}
			return nil, err
		}
		_, err := h.Platform.Registry.UpdateSecurityGroup(r.PathValue("guid"), func(g *app.SecurityGroup) error {
			all := of.spaces(g)
			if !slices.Contains(*all, space) {
				return unbound
			}
			*all = slices.DeleteFunc(*all, func(guid string) bool { return guid == space })
			return nil
		})
		return rest.Answer{Status: http.StatusNoContent}, rest.Missing(nounSecurityGroup, err)
	}
}

func (h securityGroupHandlers) presentGroup(g app.SecurityGroup, perms access.Permissions) v3.SecurityGroup {
	rules := []v3.SecurityRule{}
	for _, rule := range g.Rules {
		rules = append(rules, v3.SecurityRule(rule))
	}
	return v3.SecurityGroup{
		GUID: g.GUID, CreatedAt: v3.At(g.CreatedAt), UpdatedAt: v3.At(g.UpdatedAt), Name: g.Name, Rules: rules,
		GloballyEnabled: v3.GloballyEnabled{Running: g.Running, Staging: g.Staging},
		Relationships:   v3.SecurityGroupRelationships{RunningSpaces: rest.ToMany(present.Visible(g.Runs, perms)), StagingSpaces: rest.ToMany(present.Visible(g.Stages, perms))},
		Links:           v3.Links{"self": {Href: h.Links.Href("v3", "security_groups", g.GUID)}},
	}
}

// securityGroupResource is the access resource for a security group in the path.
func (h securityGroupHandlers) securityGroupResource() access.Resource {
	return access.Resource{Name: nounSecurityGroup, Look: func(r *http.Request) error {
		_, _, err := h.groupOf(r)
		return err
	}}
}
