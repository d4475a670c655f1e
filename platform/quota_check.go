package platform

import (
	"fmt"
	"iter"
	"maps"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform/quota"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
)

// limited is an org or a space that has a quota.
type limited struct {
	quota.Place
	guid   string
	spaces map[string]bool
}

func (p limited) has(space string) bool { return p.spaces[space] }

// limitedPlaces returns the orgs and spaces that have a quota, spaces first. Most
// machines have none.
func limitedPlaces(reg *registry.Registry) ([]limited, error) {
	quotas, err := quotasByGUID(reg)
	if err != nil || len(quotas) == 0 {
		return nil, err
	}
	spaces, err := reg.Spaces()
	if err != nil {
		return nil, err
	}
	orgs, err := reg.Orgs()
	if err != nil {
		return nil, err
	}
	var out []limited
	ofOrg := map[string]map[string]bool{}
	for _, sp := range spaces {
		if ofOrg[sp.Org] == nil {
			ofOrg[sp.Org] = map[string]bool{}
		}
		ofOrg[sp.Org][sp.GUID] = true
		if q, ok := quotas[sp.Quota]; ok {
			out = append(out, limited{quota.Place{Name: sp.Name, Quota: q}, sp.GUID, map[string]bool{sp.GUID: true}})
		}
	}
	for _, o := range orgs {
		if q, ok := quotas[o.Quota]; ok {
			out = append(out, limited{quota.Place{Org: true, Name: o.Name, Quota: q}, o.GUID, ofOrg[o.GUID]})
		}
	}
	return out, nil
}

func quotasByGUID(reg *registry.Registry) (map[string]app.Quota, error) {
	org, err := reg.OrgQuotas()
	if err != nil {
		return nil, err
	}
	space, err := reg.SpaceQuotas()
	if err != nil {
		return nil, err
	}
	out := map[string]app.Quota{}
	for _, q := range append(org, space...) {
		if q.Name != app.NoQuota {
			out[q.GUID] = q
		}
	}
	return out, nil
}

// usage returns what the places use, by guid, without services. It reads everything
// once.
func usage(reg *registry.Registry, places []limited) (map[string]quota.Use, error) {
	uses := map[string]quota.Use{}
	if len(places) == 0 {
		return uses, nil
	}
	add := func(space string, fn func(u *quota.Use)) {
		for _, p := range places {
			if p.spaces[space] {
				u := uses[p.guid]
				fn(&u)
				uses[p.guid] = u
			}
		}
	}
	if err := usageOfApps(reg, add); err != nil {
		return nil, err
	}
	routes, err := reg.Routes()
	if err != nil {
		return nil, err
	}
	for _, rt := range routes {
		add(rt.Space, func(u *quota.Use) {
			u.Routes++
			if rt.TCP() {
				u.Ports++
			}
		})
	}
	domains, err := reg.Domains()
	for _, d := range domains {
		u := uses[d.Org]
		u.Domains++
		uses[d.Org] = u // an org without a quota is never read
	}
	return uses, err
}

func usageOfApps(reg *registry.Registry, add func(space string, fn func(u *quota.Use))) error {
	apps, err := reg.Apps()
	if err != nil {
		return err
	}
	byGUID := map[string]app.App{}
	for _, a := range apps {
		byGUID[a.GUID] = a
	}
	processes, err := reg.AllProcesses()
	if err != nil {
		return err
	}
	deployments, err := reg.ActiveDeployments()
	if err != nil {
		return err
	}
	for _, p := range processes {
		a := byGUID[p.App]
		instances := p.Instances
		if d, ok := deployments[p.App]; ok && p.Type == app.Web {
			instances = max(instances, sum(maps.Values(d.Counts(p))))
		}
		if a.State != app.Started || instances == 0 {
			continue
		}
		m := quota.Member{Name: fmt.Sprintf("process %s of app %s", p.Type, a.Name), Instances: instances, Memory: p.MemoryMB, LogRate: rate(p.LogRate)}
		add(a.Space, func(u *quota.Use) { u.Add(p.GUID, m) })
	}
	tasks, err := reg.ActiveTasks()
	for _, t := range tasks {
		a := byGUID[t.App]
		if t.State == app.TaskCanceling {
			continue
		}
		m := quota.Member{Name: fmt.Sprintf("task %s of app %s", t.Name, a.Name), Task: true, Instances: 1, Memory: t.MemoryMB, LogRate: rate(t.LogRate)}
		add(a.Space, func(u *quota.Use) { u.Add(t.GUID, m) })
	}
	return err
}

func sum(counts iter.Seq[int]) (n int) {
	for c := range counts {
		n += c
	}
	return n
}

// rate returns a log rate limit, or -1 for none.
func rate(limit *int64) int64 {
	if limit == nil {
		return -1
	}
	return *limit
}

// withinQuotas carries out a change, and refuses it if an org or a space uses more than
// before and more than its quota allows. Instances that dewd starts itself, after a crash
// or when it starts, are no change.
func withinQuotas(reg *registry.Registry, change func() error) error {
	places, err := limitedPlaces(reg)
	if err != nil {
		return err
	}
	before, err := usage(reg, places)
	if err != nil {
		return err
	}
	limitedBefore := map[string]bool{}
	for _, p := range places {
		limitedBefore[p.guid] = true
	}
	if err := change(); err != nil {
		return err
	}
	// The change can create a space in an org with a quota, or change a quota.
	if places, err = limitedPlaces(reg); err != nil {
		return err
	}
	after, err := usage(reg, places)
	if err != nil {
		return err
	}
	for _, p := range places {
		if !limitedBefore[p.guid] {
			continue // the change assigns the quota
		}
		if text := p.Check(before[p.guid], after[p.guid]); text != "" {
			return Refuse("%s", text)
		}
	}
	return nil
}

// OverQuota returns a line for each limit of an org or a space that is exceeded.
func (p *Platform) OverQuota() ([]string, error) {
	places, err := limitedPlaces(p.Registry)
	if err != nil {
		return nil, err
	}
	uses, err := usage(p.Registry, places)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, place := range places {
		u := uses[place.guid]
		if u.Services, u.Keys, err = p.ServiceUsage(place.has); err != nil {
			return nil, err
		}
		lines = append(lines, place.Over(u)...)
	}
	return lines, nil
}

// ServiceUsage counts the managed service instances in spaces, and their keys.
func (p *Platform) ServiceUsage(in func(space string) bool) (instances, keys int, err error) {
	all, err := p.Services.Instances(services.InstanceFilter{Type: services.Managed})
	if err != nil {
		return 0, 0, err
	}
	inside := map[string]bool{}
	for _, i := range all {
		if in(i.Space) {
			inside[i.GUID] = true
		}
	}
	bindings, err := p.Services.Bindings(services.BindingFilter{Types: []services.BindingType{services.KeyBinding}})
	for _, b := range bindings {
		if inside[b.Instance] {
			keys++
		}
	}
	return len(inside), keys, err
}

// CreateService creates a service instance, if the quotas allow it.
func (p *Platform) CreateService(n services.NewInstance) (services.Instance, services.Operation, error) {
	p.servicesMu.Lock()
	defer p.servicesMu.Unlock()
	if n.Type == services.Managed {
		if err := p.checkServiceQuota(n.Space, 1, 0); err != nil {
			return services.Instance{}, services.Operation{}, err
		}
		if err := p.CheckPlan(n.Space, n.Plan); err != nil {
			return services.Instance{}, services.Operation{}, err
		}
	}
	return p.Services.CreateInstance(n)
}

// CreateBinding creates a service binding or a service key, if the quotas allow it.
func (p *Platform) CreateBinding(n services.NewBinding) (services.Binding, services.Operation, error) {
	p.servicesMu.Lock()
	defer p.servicesMu.Unlock()
	if n.Type == services.KeyBinding {
		i, err := p.Services.Instance(n.Instance)
		if err == nil {
			err = p.checkServiceQuota(i.Space, 0, 1)
		}
		if err != nil {
			return services.Binding{}, services.Operation{}, err
		}
	}
	return p.Services.CreateBinding(n)
}

// checkServiceQuota refuses more service instances or keys than the quotas of a space
// and its org allow.
func (p *Platform) checkServiceQuota(space string, instances, keys int) error {
	return p.eachQuota(space, func(place limited) (string, error) {
		used, usedKeys, err := p.ServiceUsage(place.has)
		before := quota.Use{Services: used, Keys: usedKeys}
		return place.Check(before, quota.Use{Services: used + instances, Keys: usedKeys + keys}), err
	})
}

// CheckPlan refuses a paid plan if a quota of the space or its org allows only free
// ones.
func (p *Platform) CheckPlan(space, plan string) error {
	return p.eachQuota(space, func(place limited) (string, error) {
		pl, err := p.Services.Plan(plan)
		if err != nil {
			return "", nil //nolint:nilerr // the request itself reports a plan that does not exist
		}
		return place.CheckPlan(pl.Free), nil
	})
}

// eachQuota calls check for the quotas of a space and its org until one refuses.
func (p *Platform) eachQuota(space string, check func(place limited) (string, error)) error {
	places, err := limitedPlaces(p.Registry)
	if err != nil {
		return err
	}
	for _, place := range places {
		if !place.spaces[space] {
			continue
		}
		text, err := check(place)
		if err != nil {
			return err
		}
		if text != "" {
			return Refuse("%s", text)
		}
	}
	return nil
}
