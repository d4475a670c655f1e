package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// ResolveTarget returns the target with its current names. Without a target it is the
// org and the space that the daemon created at its first start.
func ResolveTarget(ctx context.Context, api *client.Client, target Target) (Target, error) {
	if target.OrgGUID == "" {
		return defaultTarget(ctx, api)
	}
	if target.SpaceGUID == "" {
		return target, nil
	}
	s, err := api.Orgs().Space(ctx, target.SpaceGUID)
	if IsMissing(err) {
		return Target{}, &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("the targeted space %s of org %s does not exist any more, or you can no longer see it", target.Space, target.Org),
			Advice: "Target another one: dew target -o ORG -s SPACE (dew orgs and dew spaces list them)",
		}
	}
	if err != nil {
		return Target{}, err
	}
	target.Space = s.Name
	return target, nil
}

// CurrentTarget is the target that commands use now.
func CurrentTarget(ctx context.Context, w Env) Target {
	p, err := ResolveTarget(ctx, w.Client, w.Target)
	if err != nil {
		return w.Target
	}
	return p
}

func defaultTarget(ctx context.Context, api *client.Client) (Target, error) {
	nowhere := &console.Failure{Status: console.StatusFailed, Err: errors.New("no org and space are targeted"), Advice: "Target them: dew target -o ORG -s SPACE (dew orgs lists the orgs)"}
	o, err := api.Orgs().ByName(ctx, firstOrg)
	if IsMissing(err) {
		return Target{}, nowhere
	}
	if err != nil {
		return Target{}, err
	}
	s, err := api.Orgs().SpaceByName(ctx, o.GUID, firstSpace)
	if IsMissing(err) {
		return Target{}, nowhere
	}
	return TargetOf(o, s), err
}

// TargetOf is the target that names an org and a space.
func TargetOf(o v3.Organization, s v3.Space) Target {
	return Target{OrgGUID: o.GUID, Org: o.Name, SpaceGUID: s.GUID, Space: s.Name}
}

// Places are the names of orgs and spaces by guid.
type Places struct {
	Orgs   map[string]string
	Spaces map[string]Target
}

// SpaceName is the name of a space, or its guid if the user cannot see it.
func (p Places) SpaceName(guid string) string { return cmp.Or(p.Spaces[guid].Space, guid) }

// ReadPlaces reads the names of all orgs and spaces that the user can see.
func ReadPlaces(ctx context.Context, api *client.Client) (Places, error) {
	p := Places{Orgs: map[string]string{}, Spaces: map[string]Target{}}
	orgs, err := api.Orgs().List(ctx)
	if err != nil {
		return p, err
	}
	for _, o := range orgs {
		p.Orgs[o.GUID] = o.Name
	}
	spaces, err := api.Orgs().Spaces(ctx)
	if err != nil {
		return p, err
	}
	for _, s := range spaces {
		org := s.Relationships.Organization.ID()
		p.Spaces[s.GUID] = TargetOf(v3.Organization{GUID: org, Name: p.Orgs[org]}, s)
	}
	return p, nil
}

// String names the space and the org.
func (p Target) String() string {
	if p.Space == "" {
		return "org " + p.Org
	}
	return "space " + p.Space + " of org " + p.Org
}
