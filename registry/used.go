package registry

import "github.com/dewrun/dew/app"

// UsedBySpace is what a space takes.
func (r *Registry) UsedBySpace(guid string) (u app.Used, err error) {
	err = r.view(func(r *Registry) error {
		u, err = r.used(map[string]bool{guid: true})
		return err
	})
	return u, err
}

// UsedByOrg is what all spaces of an org take.
func (r *Registry) UsedByOrg(guid string) (u app.Used, err error) {
	err = r.view(func(r *Registry) error {
		spaces, err := r.SpacesOf(guid)
		if err != nil {
			return err
		}
		u, err = r.usedWithDomains(spaces, func(d app.Domain) bool { return d.Org == guid })
		return err
	})
	return u, err
}

// UsedByAll is what all orgs take.
func (r *Registry) UsedByAll() (u app.Used, err error) {
	err = r.view(func(r *Registry) error {
		spaces, err := r.Spaces()
		if err != nil {
			return err
		}
		u, err = r.usedWithDomains(spaces, func(d app.Domain) bool { return d.Org != "" })
		return err
	})
	return u, err
}

// usedWithDomains is what spaces take, with the domains that count.
func (r *Registry) usedWithDomains(spaces []app.Space, counts func(d app.Domain) bool) (app.Used, error) {
	inside := map[string]bool{}
	for _, s := range spaces {
		inside[s.GUID] = true
	}
	u, err := r.used(inside)
	if err != nil {
		return u, err
	}
	domains, err := r.Domains()
	for _, d := range domains {
		if counts(d) {
			u.Domains++
		}
	}
	return u, err
}

func (r *Registry) used(spaces map[string]bool) (u app.Used, err error) {
	if err := r.usedByApps(&u, spaces); err != nil {
		return u, err
	}
	routes, err := r.Routes()
	for _, rt := range routes {
		if !spaces[rt.Space] {
			continue
		}
		u.Routes++
		if rt.TCP() {
			u.Ports++
		}
	}
	return u, err
}

// usedByApps adds what the apps in the spaces take.
func (r *Registry) usedByApps(u *app.Used, spaces map[string]bool) error {
	apps, err := r.Apps()
	if err != nil {
		return err
	}
	in := map[string]app.App{}
	for _, a := range apps {
		if spaces[a.Space] {
			in[a.GUID] = a
		}
	}
	ps, err := r.AllProcesses()
	if err != nil {
		return err
	}
	for _, p := range ps {
		if in[p.App].State == app.Started {
			u.Instances += p.Instances
			u.Memory += p.Instances * p.MemoryMB
		}
	}
	ts, err := r.ActiveTasks()
	for _, t := range ts {
		if in[t.App].GUID != "" && t.State != app.TaskCanceling {
			u.Tasks++
			u.Memory += t.MemoryMB
		}
	}
	return err
}
