package app

import (
	"errors"
	"fmt"
)

// Refusal says that something cannot be had, in words that clients of the platform
// know.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return e.Text }

// Used is what an org or a space takes of its quota.
type Used struct {
	Memory    int // MB of started instances and tasks
	Instances int // started
	Tasks     int // that have not ended
	Routes    int
	Ports     int // of TCP routes
	Domains   int // private ones, of an org

	excess int // MB of instances and tasks beyond the limit of one
}

// scope is an org or a space with the quota that it has.
type scope struct {
	space, org string // exactly one of them: a guid
	name       string
	quota      Quota
}

// scopes are the org and the space of a space that have quotas.
func (r *Registry) scopes(space string) ([]scope, error) {
	s, err := r.Space(space)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := r.Org(s.Org)
	if err != nil {
		return nil, err
	}
	var out []scope
	for _, one := range []struct {
		scope
		guid string
	}{{scope{space: s.GUID, name: s.Name}, s.Quota}, {scope{org: o.GUID, name: o.Name}, o.Quota}} {
		if one.guid == "" {
			continue
		}
		if one.quota, err = r.Quota(one.guid); err != nil {
			return nil, err
		}
		out = append(out, one.scope)
	}
	return out, nil
}

// quotaGuard looks at what is used before a change in a space. What it returns,
// called after the change, refuses what has grown beyond a quota. What was beyond
// it before may stay, and shrink.
func (r *Registry) quotaGuard(space string) (func() error, error) {
	scopes, err := r.scopes(space)
	if err != nil || len(scopes) == 0 {
		return func() error { return nil }, err
	}
	before := make([]Used, len(scopes))
	for i, s := range scopes {
		if before[i], err = r.used(s); err != nil {
			return nil, err
		}
	}
	return func() error {
		for i, s := range scopes {
			after, err := r.used(s)
			if err != nil {
				return err
			}
			if err := s.allows(before[i], after); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// allows compares what is used with the quota.
func (s scope) allows(before, after Used) error {
	kind, prefix, noun := "organization", "", "org"
	if s.space != "" {
		kind, prefix, noun = "space", "space_", "space"
	}
	grown := func(limit *int, before, after int) bool { return limit != nil && after > *limit && after > before }
	q := s.quota
	switch {
	case grown(q.TotalMemory, before.Memory, after.Memory):
		return refusal("memory %squota_exceeded: %s '%s' may have %dM in all, and would have %dM", prefix, noun, s.name, *q.TotalMemory, after.Memory)
	case after.excess > before.excess:
		return refusal("memory %sinstance_memory_limit_exceeded: %s '%s' allows %dM for one instance or task", prefix, noun, s.name, *q.ProcessMemory)
	case grown(q.Instances, before.Instances, after.Instances):
		return refusal("app_instance_limit %sapp_instance_limit_exceeded: %s '%s' may have %d instances in all, and would have %d",
			prefix, noun, s.name, *q.Instances, after.Instances)
	case grown(q.Tasks, before.Tasks, after.Tasks):
		return refusal("app_task_limit quota exceeded: %s '%s' may have %d tasks at a time", noun, s.name, *q.Tasks)
	case grown(q.Routes, before.Routes, after.Routes):
		return refusal("Routes quota exceeded for %s '%s'.", kind, s.name)
	case grown(q.Ports, before.Ports, after.Ports):
		return refusal("Reserved route ports quota exceeded for %s '%s'.", kind, s.name)
	}
	return nil
}

func refusal(format string, args ...any) error {
	return &Refusal{Text: fmt.Sprintf(format, args...)}
}

// UsedBySpace is what a space takes.
func (r *Registry) UsedBySpace(guid string) (u Used, err error) {
	err = r.view(func(r *Registry) error {
		u, err = r.used(scope{space: guid})
		return err
	})
	return u, err
}

// UsedByOrg is what all spaces of an org take.
func (r *Registry) UsedByOrg(guid string) (u Used, err error) {
	err = r.view(func(r *Registry) error {
		u, err = r.used(scope{org: guid})
		return err
	})
	return u, err
}

func (r *Registry) used(s scope) (u Used, err error) {
	spaces := map[string]bool{s.space: true}
	if s.org != "" {
		clear(spaces)
		all, err := r.SpacesOf(s.org)
		if err != nil {
			return u, err
		}
		for _, sp := range all {
			spaces[sp.GUID] = true
		}
	}
	if err := r.usedByApps(&u, spaces, s.quota.ProcessMemory); err != nil {
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
	if err != nil || s.org == "" {
		return u, err
	}
	domains, err := r.Domains()
	for _, d := range domains {
		if d.Org == s.org {
			u.Domains++
		}
	}
	return u, err
}

// usedByApps adds what the apps in the spaces take; most is what one instance may
// have.
func (r *Registry) usedByApps(u *Used, spaces map[string]bool, most *int) error {
	apps, err := r.Apps()
	if err != nil {
		return err
	}
	add := func(instances, mb int) {
		u.Memory += instances * mb
		if most != nil && instances > 0 {
			u.excess += max(0, mb-*most)
		}
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
			add(p.Instances, p.MemoryMB)
		}
	}
	ts, err := r.ActiveTasks()
	for _, t := range ts {
		if in[t.App].GUID != "" && t.State != TaskCanceling {
			u.Tasks++
			add(1, t.MemoryMB)
		}
	}
	return err
}

// ServiceLimit is how many managed service instances a space, or its org, may
// have, and whether plans that cost something are allowed.
type ServiceLimit struct {
	Space  bool // the space's own quota, else its org's
	GUID   string
	Most   *int
	NoPaid bool
}

// ServiceLimits are the limits on services that quotas set for a space.
func (r *Registry) ServiceLimits(space string) ([]ServiceLimit, error) {
	scopes, err := r.scopes(space)
	var out []ServiceLimit
	for _, s := range scopes {
		out = append(out, ServiceLimit{Space: s.space != "", GUID: s.space + s.org, Most: s.quota.Services, NoPaid: s.quota.NoPaid})
	}
	return out, err
}
