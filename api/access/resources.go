package access

import (
	"errors"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// Deployment is a deployment that a path names.
var Deployment = Resource{Name: "Deployment", Find: func(c *Control, guid string) (Place, error) {
	d, err := c.Registry.Deployment(guid)
	return c.inApp(d.App, err)
}}

// ControllableDeployment is a deployment to cancel or continue. For callers who cannot do
// that it does not exist.
var ControllableDeployment = Resource{Name: Deployment.Name, Find: Deployment.Find, shown: Support}

// SpaceQuota is a space quota that a path names. It belongs to an org. The org's
// managers can see it, and callers with a role in a space that has it.
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

// SpaceQuotaName is the name of a space quota in responses.
const SpaceQuotaName = "Space quota"

// SpaceQuota returns the space quota with the guid.
func (c *Control) SpaceQuota(guid string) (app.Quota, error) {
	q, err := c.Registry.Quota(guid)
	if err == nil && q.Org == "" {
		err = app.ErrNotFound // it is an org quota
	}
	return q, err
}

// Revision is a revision that a path names.
var Revision = Resource{Name: "Revision", Find: func(c *Control, guid string) (Place, error) {
	v, err := c.Registry.Revision(guid)
	return c.inApp(v.App, err)
}}

// routeReaders returns the spaces that a route is shared with.
func routeReaders(c *Control, guid string) ([]string, error) {
	rt, err := c.Registry.Route(guid)
	return rt.SharedWith, err
}

// The resources of the marketplace. Members of spaces that an instance is shared with
// can see it.
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
	// Credential is a binding, for its secrets. For callers who cannot read them it
	// does not exist.
	Credential   = Resource{Name: CredentialBinding.Name, Find: CredentialBinding.Find, shown: ReadSecrets}
	RouteBinding = Resource{Name: "Service route binding", Find: func(c *Control, guid string) (Place, error) {
		return c.bindingPlace(guid, services.RouteBinding)
	}}
)

// bindingPlace returns the place of a binding of one of the types: the place of the
// bound app or route.
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

// BindingSpace returns the guid of the space of a binding.
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
	i, err := c.Services.Instance(b.Instance) // a key, or a binding whose app or route is deleted
	return i.Space, err
}

// Task is a task that a path names.
var Task = Resource{Name: "Task", Find: func(c *Control, guid string) (Place, error) {
	t, err := c.Registry.Task(guid)
	return c.inApp(t.App, err)
}}
