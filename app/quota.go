package app

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// Quota says what an org, or a space, is meant to have. It is a record: kept,
// shown and given to orgs and spaces, and nothing is refused because of it. A limit
// that is nil is none.
type Quota struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Org  string `json:"org,omitempty"` // guid: it is for spaces of that org; empty: it is for orgs
	Limits
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Limits are the limits of a quota.
type Limits struct {
	TotalMemory   *int `json:"total_memory,omitempty"`   // MB of all that is started, tasks included
	ProcessMemory *int `json:"process_memory,omitempty"` // MB of one instance or task
	LogRate       *int `json:"log_rate,omitempty"`       // bytes per second
	Instances     *int `json:"instances,omitempty"`      // that are started
	Tasks         *int `json:"tasks,omitempty"`          // at a time
	NoPaid        bool `json:"no_paid,omitempty"`        // no instances of plans that cost something
	Services      *int `json:"services,omitempty"`       // managed instances
	Keys          *int `json:"keys,omitempty"`           // of services
	Routes        *int `json:"routes,omitempty"`         //
	Ports         *int `json:"ports,omitempty"`          // of TCP routes
	Domains       *int `json:"domains,omitempty"`        // private ones, of an org
}

// noQuota is the name of the quota that every org has that was given no other. It
// limits nothing, and is kept nowhere.
const noQuota = "unlimited"

// Unlimited is the quota of orgs that were given no other.
func Unlimited() Quota { return Quota{GUID: "6b3c4f5e-2a1d-4c0b-9e8f-7d6a5b4c3d2e", Name: noQuota} }

// ErrBuiltIn says that something cannot be changed because it is built in.
var ErrBuiltIn = errors.New("is built in")

// PutQuota keeps q in the place of the quota with its guid, or as a new one.
func (r *Registry) PutQuota(q Quota) (Quota, error) {
	err := r.update(func(r *Registry) error {
		old, err := find(r.records.quotas, q.GUID)
		if err != nil {
			return err
		}
		if q.Org != "" {
			if _, err := r.Org(q.Org); err != nil {
				return err
			}
		}
		q.GUID = cmp.Or(q.GUID, uuid.NewString())
		q.CreatedAt, q.UpdatedAt = stamps(old.GUID != "", old.CreatedAt)
		if err := q.check(); err != nil {
			return err
		}
		err = r.records.quotas.Put(q.GUID, q)
		if errors.Is(err, store.ErrTaken) {
			return q.taken()
		}
		return err
	})
	if err != nil {
		return q, fmt.Errorf("cannot keep quota %q: %w", q.Name, err)
	}
	return q, nil
}

// UpdateQuota changes a quota in one transaction.
func (r *Registry) UpdateQuota(guid string, fn func(q *Quota) error) (q Quota, err error) {
	err = r.update(func(r *Registry) error {
		if guid == Unlimited().GUID {
			return fmt.Errorf("quota %s %w: create another one, and apply it", noQuota, ErrBuiltIn)
		}
		if q, err = r.Quota(guid); err != nil {
			return err
		}
		if err := fn(&q); err != nil {
			return err
		}
		q.GUID = guid
		q, err = r.PutQuota(q)
		return err
	})
	return q, err
}

// Quota returns the quota with guid.
func (r *Registry) Quota(guid string) (Quota, error) {
	if guid == Unlimited().GUID {
		return Unlimited(), nil
	}
	return get(r.records.quotas, "quota", guid)
}

// OrgQuotas returns the quotas for orgs by name, the one that limits nothing too.
func (r *Registry) OrgQuotas() ([]Quota, error) {
	all, err := r.quotas(func(q Quota) bool { return q.Org == "" })
	return append(all, Unlimited()), err
}

// SpaceQuotas returns the quotas for spaces by name.
func (r *Registry) SpaceQuotas() ([]Quota, error) {
	return r.quotas(func(q Quota) bool { return q.Org != "" })
}

func (r *Registry) quotas(among func(q Quota) bool) ([]Quota, error) {
	all, err := sorted(r.records.quotas, "quotas", func(a, b Quota) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(q Quota) bool { return !among(q) }), err
}

// DeleteQuota removes a quota. Orgs and spaces that had it have none.
func (r *Registry) DeleteQuota(guid string) error {
	return r.update(func(r *Registry) error {
		if guid == Unlimited().GUID {
			return fmt.Errorf("quota %s %w", noQuota, ErrBuiltIn)
		}
		if _, err := r.Quota(guid); err != nil {
			return err
		}
		if err := errors.Join(r.dropFromOrgs(guid), r.dropFromSpaces(guid)); err != nil {
			return err
		}
		if err := r.records.quotas.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete quota %s: %w", guid, err)
		}
		return nil
	})
}

func (r *Registry) dropFromOrgs(guid string) error {
	orgs, err := r.Orgs()
	for _, o := range orgs {
		if o.Quota == guid {
			o.Quota = ""
			err = errors.Join(err, r.orgs.Put(o.GUID, o))
		}
	}
	return err
}

func (r *Registry) dropFromSpaces(guid string) error {
	spaces, err := r.Spaces()
	for _, s := range spaces {
		if s.Quota == guid {
			s.Quota = ""
			err = errors.Join(err, r.spaces.Put(s.GUID, s))
		}
	}
	return err
}

// deleteQuotasOf removes the space quotas of an org that goes.
func (r *Registry) deleteQuotasOf(org string) error {
	all, err := r.SpaceQuotas()
	for _, q := range all {
		if q.Org == org {
			err = errors.Join(err, r.records.quotas.Delete(q.GUID))
		}
	}
	return err
}

func (q Quota) taken() error {
	if q.Org == "" {
		return refusal("Organization Quota '%s' already exists.", q.Name)
	}
	return refusal("Space Quota '%s' already exists.", q.Name)
}

func (q Quota) check() error {
	var ps problems
	ps.name("name", q.Name)
	if q.Org == "" && q.Name == noQuota {
		ps.add("name", "%q is the quota that is built in: choose another name", noQuota)
	}
	for _, l := range []struct {
		key   string
		limit *int
	}{
		{"apps.total_memory_in_mb", q.TotalMemory},
		{"apps.per_process_memory_in_mb", q.ProcessMemory},
		{"apps.log_rate_limit_in_bytes_per_second", q.LogRate},
		{"apps.total_instances", q.Instances},
		{"apps.per_app_tasks", q.Tasks},
		{"services.total_service_instances", q.Services},
		{"services.total_service_keys", q.Keys},
		{"routes.total_routes", q.Routes},
		{"routes.total_reserved_ports", q.Ports},
		{"domains.total_domains", q.Domains},
	} {
		if l.limit != nil && *l.limit < 0 {
			ps.add(l.key, "must be 0 or more, or null for no limit, not %d", *l.limit)
		}
	}
	if q.Ports != nil && q.Routes != nil && *q.Ports > *q.Routes {
		ps.add("routes.total_reserved_ports", "must be at most total_routes, %d", *q.Routes)
	}
	return ps.err()
}
