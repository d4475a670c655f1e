// Package desired reads the part of the desired state that network rules depend on, and
// decides whether a root enforces them.
package desired

import (
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/netpolicy"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
)

// Reader reads the desired state.
type Reader struct {
	Registry *registry.Registry
	Services *marketplace.Marketplace
	Policies *netpolicy.Store
}

// State returns the present desired state.
func (r Reader) State() (netpolicy.State, error) {
	s := netpolicy.State{Apps: map[string]netpolicy.App{}, Spaces: map[string]netpolicy.Space{}, Services: map[string]string{}}
	apps, err := r.Registry.Apps()
	if err != nil {
		return s, err
	}
	for _, a := range apps {
		s.Apps[a.GUID] = netpolicy.App{Name: a.Name, Space: a.Space}
	}
	spaces, err := r.Registry.Spaces()
	if err != nil {
		return s, err
	}
	for _, sp := range spaces {
		org, err := r.Registry.Org(sp.Org)
		if err != nil && !errors.Is(err, app.ErrNotFound) {
			return s, err
		}
		s.Spaces[sp.GUID] = netpolicy.Space{Name: sp.Name, Org: org.Name}
	}
	var gerr, perr error
	s.Groups, gerr = r.Registry.SecurityGroups()
	s.Policies, perr = r.Policies.All()
	return s, errors.Join(gerr, perr, r.readServices(&s))
}

// readServices reads which service instances are open to which apps. A binding opens
// its service instance to one app, and a service key to the apps of the space.
func (r Reader) readServices(s *netpolicy.State) error {
	if r.Services == nil {
		return nil
	}
	instances, err := r.Services.Instances(services.InstanceFilter{})
	if err != nil {
		return err
	}
	space := map[string]string{}
	for _, i := range instances {
		s.Services[i.GUID], space[i.GUID] = i.Name, i.Space
	}
	bindings, err := r.Services.Bindings(services.BindingFilter{})
	if err != nil {
		return err
	}
	for _, b := range bindings {
		if !b.Usable() {
			continue
		}
		switch b.Type {
		case services.AppBinding:
			s.Openings = append(s.Openings, netpolicy.Opening{App: b.App, Service: b.Instance})
		case services.KeyBinding:
			s.Openings = append(s.Openings, netpolicy.Opening{Space: space[b.Instance], Service: b.Instance})
		}
	}
	return nil
}

// The values of --network-policies. The empty one stands for the setting of the root.
const (
	On  = "on"
	Off = "off"
)

// Enforce decides whether the rules are enforced: as the flag says, otherwise as the
// root says. A new root enforces them, a root of an older dewd does not. The first time
// that rules are enforced, it creates the default security group.
func (r Reader) Enforce(flag string, older bool) (bool, error) {
	v, err := r.Policies.Settings(func() (netpolicy.Settings, error) {
		return netpolicy.Settings{Enforced: !older, Older: older}, nil
	})
	if err != nil {
		return false, err
	}
	if flag == Off || flag == "" && !v.Enforced {
		return false, nil
	}
	if !v.DefaultGroup {
		if err := r.createDefaultGroup(); err != nil {
			return false, err
		}
	}
	if v.Enforced && v.DefaultGroup {
		return true, nil
	}
	v.Enforced, v.Older, v.DefaultGroup = true, false, true
	return true, r.Policies.PutSettings(v)
}

// createDefaultGroup creates the default security group, unless a group has its name.
func (r Reader) createDefaultGroup() error {
	groups, err := r.Registry.SecurityGroups()
	if err != nil {
		return err
	}
	group := netpolicy.DefaultGroup()
	for _, g := range groups {
		if g.Name == group.Name && g.Running && g.Staging {
			return nil
		}
		if g.Name == group.Name {
			group.Name = "dew-" + group.Name
		}
	}
	if _, err := r.Registry.PutSecurityGroup(group); err != nil {
		return fmt.Errorf("cannot create the default security group: %w", err)
	}
	return nil
}
