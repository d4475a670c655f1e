package access

import (
	"errors"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// Deployment is what a path names; see the other nouns.
var Deployment = Resource{Name: "Deployment", Find: func(c *Control, guid string) (Place, error) {
	d, err := c.Registry.Deployment(guid)
	return c.inApp(d.App, err)
}}

// MovingDeployment is a deployment to cancel or continue. To callers who cannot do that it
// does not exist.
var MovingDeployment = Resource{Name: Deployment.Name, Find: Deployment.Find, shown: Support}

// SpaceQuota is what the path of a space quota names: it lives in an org, and its
// managers see it, and who works in a space that has it.
var SpaceQuota = Resource{
	Name: SpaceQuotaName,
	Find: func(c *Control, guid string) (Place, error) {
		q, err := c.SpaceQuota(guid)
		return Place{Org: q.Org}, err
	},
	Readers: func(c *Control, guid string) (spaces []string, err error) {
		all, err := c.Registry.Spaces()
		for _, sp := range all {
			if sp.Quota == guid {
				spaces = append(spaces, sp.GUID)
			}
		}
		return spaces, err
	},
	shown: ReadQuota,
}

// SpaceQuotaName is how responses call a space quota.
const SpaceQuotaName = "Space quota"

// SpaceQuota is the space quota with the guid.
func (c *Control) SpaceQuota(guid string) (app.Quota, error) {
	q, err := c.Registry.Quota(guid)
	if err == nil && q.Org == "" {
		err = app.ErrNotFound // it is for orgs
	}
	return q, err
}

// Revision is what a path names; see the other nouns.
var Revision = Resource{Name: "Revision", Find: func(c *Control, guid string) (Place, error) {
	v, err := c.Registry.Revision(guid)
	return c.inApp(v.App, err)
}}

// routeReaders are the spaces that a route is shared with.
func routeReaders(c *Control, guid string) ([]string, error) {
	rt, err := c.Registry.Route(guid)
	return rt.SharedWith, err
}

// The resources of the marketplace. Spaces that an instance is shared with can see it.
var (
	ServiceInstance = Resource{
		Name: "Service instance",
		Find: func(c *Control, guid string) (Place, error) {
			i, err := c.Services.Instance(guid)
			if err != nil {
				return Place{}, err
			}
			return c.spacePlace(i.Space)
		},
		Readers: func(c *Control, guid string) ([]string, error) {
			i, err := c.Services.Instance(guid)
			return i.SharedWith, err
		},
	}
	CredentialBinding = Resource{Name: "Service credential binding", Find: func(c *Control, guid string) (Place, error) {
		return c.bindingPlace(guid, services.AppBinding, services.KeyBinding)
	}}
	// Credential is a binding for its secrets. To callers who cannot read them it does
	// not exist.
	Credential   = Resource{Name: CredentialBinding.Name, Find: CredentialBinding.Find, shown: ReadSecrets}
	RouteBinding = Resource{Name: "Service route binding", Find: func(c *Control, guid string) (Place, error) {
		return c.bindingPlace(guid, services.RouteBinding)
	}}
)

// bindingPlace is where a binding of one of the types belongs: to what is bound.
func (c *Control) bindingPlace(guid string, types ...services.BindingType) (Place, error) {
	b, err := c.Services.Binding(guid)
	if err == nil && !slices.Contains(types, b.Type) {
		err = services.ErrNotFound
	}
	if err != nil {
		return Place{}, err
	}
	space, err := c.BindingSpace(b)
	if err != nil {
		return Place{}, err
	}
	return c.spacePlace(space)
}

// BindingSpace is the guid of that space.
func (c *Control) BindingSpace(b services.Binding) (string, error) {
	switch b.Type {
	case services.AppBinding:
		a, err := c.Registry.App(b.App)
		if err == nil || !errors.Is(err, app.ErrNotFound) {
			return a.Space, err
		}
	case services.RouteBinding:
		rt, err := c.Registry.Route(b.Route)
		if err == nil || !errors.Is(err, app.ErrNotFound) {
			return rt.Space, err
		}
	}
	i, err := c.Services.Instance(b.Instance) // a key, or what is left of something
	return i.Space, err
}

// Task is what the path of a task names.
var Task = Resource{Name: "Task", Find: func(c *Control, guid string) (Place, error) {
	t, err := c.Registry.Task(guid)
	return c.inApp(t.App, err)
}}
