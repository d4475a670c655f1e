package app

// Used is what the apps and routes of an org or a space take.
type Used struct {
	Memory    int // MB of started instances and tasks
	Instances int // started
	Tasks     int // that have not ended
	Routes    int
	Ports     int // of TCP routes
	Domains   int // private ones, of an org
}

// UsedBySpace is what a space takes.
func (r *Registry) UsedBySpace(guid string) (u Used, err error) {
	err = r.view(func(r *Registry) error {
		u, err = r.used(map[string]bool{guid: true})
		return err
	})
	return u, err
}

// UsedByOrg is what all spaces of an org take.
func (r *Registry) UsedByOrg(guid string) (u Used, err error) {
	err = r.view(func(r *Registry) error {
		spaces, err := r.SpacesOf(guid)
		if err != nil {
			return err
		}
		u, err = r.usedWithDomains(spaces, func(d Domain) bool { return d.Org == guid })
		return err
	})
	return u, err
}

// UsedByAll is what all orgs take.
func (r *Registry) UsedByAll() (u Used, err error) {
	err = r.view(func(r *Registry) error {
		spaces, err := r.Spaces()
		if err != nil {
			return err
		}
		u, err = r.usedWithDomains(spaces, func(d Domain) bool { return d.Org != "" })
		return err
	})
	return u, err
}

// usedWithDomains is what spaces take, with the domains that count.
func (r *Registry) usedWithDomains(spaces []Space, counts func(d Domain) bool) (Used, error) {
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

func (r *Registry) used(spaces map[string]bool) (u Used, err error) {
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
func (r *Registry) usedByApps(u *Used, spaces map[string]bool) error {
	apps, err := r.Apps()
	if err != nil {
		return err
	}
	in := map[string]App{}
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
		if in[p.App].State == Started {
			u.Instances += p.Instances
			u.Memory += p.Instances * p.MemoryMB
		}
	}
	ts, err := r.ActiveTasks()
	for _, t := range ts {
		if in[t.App].GUID != "" && t.State != TaskCanceling {
			u.Tasks++
			u.Memory += t.MemoryMB
		}
	}
	return err
}
