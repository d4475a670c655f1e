package app

import (
	"errors"
	"time"
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

// NoQuota is the name of the quota that every org has that was given no other. It
// limits nothing, and is kept nowhere.
const NoQuota = "unlimited"

// Unlimited is the quota of orgs that were given no other.
func Unlimited() Quota { return Quota{GUID: "6b3c4f5e-2a1d-4c0b-9e8f-7d6a5b4c3d2e", Name: NoQuota} }

// ErrBuiltIn says that something cannot be changed because it is built in.
var ErrBuiltIn = errors.New("is built in")

func (q Quota) Taken() error {
	if q.Org == "" {
		return NewRefusal("Organization Quota '%s' already exists.", q.Name)
	}
	return NewRefusal("Space Quota '%s' already exists.", q.Name)
}

func (q Quota) Validate() error {
	var ps Violations
	ps.Name("name", q.Name)
	if q.Org == "" && q.Name == NoQuota {
		ps.Add("name", "%q is the quota that is built in: choose another name", NoQuota)
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
			ps.Add(l.key, "must be 0 or more, or null for no limit, not %d", *l.limit)
		}
	}
	if q.Ports != nil && q.Routes != nil && *q.Ports > *q.Routes {
		ps.Add("routes.total_reserved_ports", "must be at most total_routes, %d", *q.Routes)
	}
	return ps.Err()
}
