package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// securityGroupsEndpoints are the endpoints of this file.
func (s *Server) securityGroupsEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/security_groups", Needs: authenticated,
			Handler: s.listSecurityGroups, Shape: pageOf[v3.SecurityGroup]("names", "guids", "running_space_guids", "staging_space_guids", "globally_enabled_running", "globally_enabled_staging"),
		},
		{
			Pattern: "POST /v3/security_groups", Needs: toAdminister,
			Handler: s.createSecurityGroup, Shape: gives[v3.SecurityGroup](201).from(jsonOf[v3.ChangeSecurityGroup]()),
		},
		{
			Pattern: "GET /v3/security_groups/{guid}", Needs: authenticated, // those of what one sees
			Handler: s.getSecurityGroup, Shape: gives[v3.SecurityGroup](200),
		},
		{
			Pattern: "PATCH /v3/security_groups/{guid}", Needs: toAdminister, Resource: s.securityGroupResource(),
			Handler: s.updateSecurityGroup, Shape: gives[v3.SecurityGroup](200).from(jsonOf[v3.ChangeSecurityGroup]()),
		},
		{Pattern: "DELETE /v3/security_groups/{guid}", Needs: toAdminister, Resource: s.securityGroupResource(), Handler: s.deleteSecurityGroup, Shape: begins()},
		{
			Pattern: "GET /v3/spaces/{guid}/running_security_groups", Needs: toRead, Resource: aSpace,
			Handler: s.listSpaceGroups(runsOf), Shape: pageOf[v3.SecurityGroup]("names", "guids"),
		},
		{
			Pattern: "GET /v3/spaces/{guid}/staging_security_groups", Needs: toRead, Resource: aSpace,
			Handler: s.listSpaceGroups(stagesOf), Shape: pageOf[v3.SecurityGroup]("names", "guids"),
		},
		{
			Pattern: "POST /v3/security_groups/{guid}/relationships/running_spaces", Needs: authenticated, // the body names the spaces
			Handler: s.bindGroup(runsOf), Shape: gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
		},
		{
			Pattern: "POST /v3/security_groups/{guid}/relationships/staging_spaces", Needs: authenticated,
			Handler: s.bindGroup(stagesOf), Shape: gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
		},
		{
			Pattern: "DELETE /v3/security_groups/{guid}/relationships/running_spaces/{space}", Needs: authenticated,
			Handler: s.unbindGroup(runsOf), Shape: ends(204),
		},
		{
			Pattern: "DELETE /v3/security_groups/{guid}/relationships/staging_spaces/{space}", Needs: authenticated,
			Handler: s.unbindGroup(stagesOf), Shape: ends(204),
		},
	}
}

// opDeleteSecurityGroup is the job that removes a group.
const opDeleteSecurityGroup = "security_group.delete"

const nounSecurityGroup = "Security group"

// side is one of the two kinds of containers that a group can be for.
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

// seesGroup tells whether a group is seen: one for all spaces, or for a space that
// is.
func (perms permissions) seesGroup(g app.SecurityGroup) bool {
	return perms.all || g.Running || g.Staging || slices.ContainsFunc(slices.Concat(g.Runs, g.Stages), perms.space)
}

// groupOf is the group that the path names, if who asks sees it.
func (s *Server) groupOf(r *http.Request) (app.SecurityGroup, permissions, error) {
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return app.SecurityGroup{}, perms, err
	}
	g, err := s.c.Registry.SecurityGroup(r.PathValue("guid"))
	if err == nil && !perms.seesGroup(g) {
		err = app.ErrNotFound
	}
	return g, perms, missing(nounSecurityGroup, err)
}

func (s *Server) listSecurityGroups(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	return s.pageOfGroups(r, q, func(g app.SecurityGroup) bool {
		return q.lets("globally_enabled_running", strconv.FormatBool(g.Running)) && q.lets("globally_enabled_staging", strconv.FormatBool(g.Staging)) &&
			q.lets("running_space_guids", seen(g.Runs, perms)...) && q.lets("staging_space_guids", seen(g.Stages, perms)...)
	})
}

// listSpaceGroups lists the groups of a space, those for all spaces too.
func (s *Server) listSpaceGroups(of side) handler {
	return func(r *http.Request) (any, error) {
		q, err := readQuery(r)
		if err != nil {
			return nil, err
		}
		sp, err := s.spaceOf(r)
		if err != nil {
			return nil, err
		}
		return s.pageOfGroups(r, q, func(g app.SecurityGroup) bool { return of.global(g) || slices.Contains(*of.spaces(&g), sp.GUID) })
	}
}

func (s *Server) pageOfGroups(r *http.Request, q query, among func(g app.SecurityGroup) bool) (any, error) {
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.SecurityGroups()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(g app.SecurityGroup) bool {
		return !perms.seesGroup(g) || !q.lets("names", g.Name) || !q.lets("guids", g.GUID) || !among(g)
	})
	return list(s.links, r, q, all, look[app.SecurityGroup, v3.SecurityGroup]{
		key:     func(g app.SecurityGroup) key { return key{g.Name, g.CreatedAt, g.UpdatedAt, g.GUID} },
		present: func(g app.SecurityGroup) v3.SecurityGroup { return s.presentGroup(g, perms) },
	}), nil
}

func (s *Server) createSecurityGroup(r *http.Request) (any, error) {
	body, err := decode[v3.ChangeSecurityGroup](r)
	if err != nil {
		return nil, err
	}
	var g app.SecurityGroup
	changeGroup(&g, body)
	if rel := body.Relationships; rel != nil {
		g.Runs, g.Stages = guids(rel.RunningSpaces), guids(rel.StagingSpaces)
	}
	if g, err = s.c.Registry.PutSecurityGroup(g); err != nil {
		return nil, noSpaces(err)
	}
	perms, err := s.access.permissions(r.Context())
	return answer{status: http.StatusCreated, body: s.presentGroup(g, perms)}, err
}

// noSpaces says in the platform's words that one of the spaces is not there.
func noSpaces(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return unprocessable("Spaces do not exist, or you do not have access to them.")
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

func (s *Server) getSecurityGroup(r *http.Request) (any, error) {
	g, perms, err := s.groupOf(r)
	if err != nil {
		return nil, err
	}
	return s.presentGroup(g, perms), nil
}

func (s *Server) updateSecurityGroup(r *http.Request) (any, error) {
	body, err := decode[v3.ChangeSecurityGroup](r)
	if err != nil {
		return nil, err
	}
	if body.Relationships != nil {
		return nil, unprocessable("Unknown field(s): 'relationships'")
	}
	g, err := s.c.Registry.UpdateSecurityGroup(r.PathValue("guid"), func(g *app.SecurityGroup) error {
		changeGroup(g, body)
		return nil
	})
	if err != nil {
		return nil, missing(nounSecurityGroup, err)
	}
	perms, err := s.access.permissions(r.Context())
	return s.presentGroup(g, perms), err
}

func (s *Server) deleteSecurityGroup(r *http.Request) (any, error) {
	g, err := s.c.Registry.SecurityGroup(r.PathValue("guid"))
	if err != nil {
		return nil, missing(nounSecurityGroup, err)
	}
	return s.begin(r.Context(), opDeleteSecurityGroup, removal{GUID: g.GUID})
}

func (s *Server) doDeleteSecurityGroup(_ context.Context, guid string) error {
	return gone(s.c.Registry.DeleteSecurityGroup(guid))
}

// bindGroup gives a group to spaces that who asks manages.
func (s *Server) bindGroup(of side) handler {
	return func(r *http.Request) (any, error) {
		body, err := decode[v3.ToMany](r)
		if err != nil {
			return nil, err
		}
		if _, _, err := s.groupOf(r); err != nil {
			return nil, err
		}
		for _, space := range guids(&body) {
			if err := s.access.require(r.Context(), toManage, space); err != nil {
				return nil, noSpaces(err)
			}
		}
		g, err := s.c.Registry.UpdateSecurityGroup(r.PathValue("guid"), func(g *app.SecurityGroup) error {
			*of.spaces(g) = append(*of.spaces(g), guids(&body)...)
			return nil
		})
		if err != nil {
			return nil, noSpaces(err)
		}
		perms, err := s.access.permissions(r.Context())
		return v3.RelatedMany{
			Data:  toMany(seen(*of.spaces(&g), perms)).Data,
			Links: v3.Links{"self": {Href: s.links.Href("v3", "security_groups", g.GUID, "relationships", of.name)}},
		}, err
	}
}

// unbindGroup takes a group from a space.
func (s *Server) unbindGroup(of side) handler {
	return func(r *http.Request) (any, error) {
		if _, _, err := s.groupOf(r); err != nil {
			return nil, err
		}
		space := r.PathValue("space")
		unbound := unprocessable("Unable to unbind security group from space with guid '%s'. Ensure the space is bound to this security group.", space)
		if err := s.access.require(r.Context(), toManage, space); err != nil {
			if errors.Is(err, app.ErrNotFound) {
				err = unbound
			}
			return nil, err
		}
		_, err := s.c.Registry.UpdateSecurityGroup(r.PathValue("guid"), func(g *app.SecurityGroup) error {
			all := of.spaces(g)
			if !slices.Contains(*all, space) {
				return unbound
			}
			*all = slices.DeleteFunc(*all, func(guid string) bool { return guid == space })
			return nil
		})
		return answer{status: http.StatusNoContent}, missing(nounSecurityGroup, err)
	}
}

// seen are the spaces among guids that somebody sees.
func seen(guids []string, perms permissions) []string {
	return slices.DeleteFunc(slices.Clone(guids), func(guid string) bool { return !perms.space(guid) })
}

func (s *Server) presentGroup(g app.SecurityGroup, perms permissions) v3.SecurityGroup {
	rules := []v3.SecurityRule{}
	for _, rule := range g.Rules {
		rules = append(rules, v3.SecurityRule(rule))
	}
	return v3.SecurityGroup{
		GUID: g.GUID, CreatedAt: v3.At(g.CreatedAt), UpdatedAt: v3.At(g.UpdatedAt), Name: g.Name, Rules: rules,
		GloballyEnabled: v3.GloballyEnabled{Running: g.Running, Staging: g.Staging},
		Relationships:   v3.SecurityGroupRelationships{RunningSpaces: toMany(seen(g.Runs, perms)), StagingSpaces: toMany(seen(g.Stages, perms))},
		Links:           v3.Links{"self": {Href: s.links.Href("v3", "security_groups", g.GUID)}},
	}
}

// securityGroupResource is what the path of a security group names.
func (s *Server) securityGroupResource() resource {
	return resource{name: nounSecurityGroup, look: func(r *http.Request) error {
		_, _, err := s.groupOf(r)
		return err
	}}
}
