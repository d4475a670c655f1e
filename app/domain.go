package app

import (
	"slices"
	"time"
)

// Domain is what the names of routes end with.
type Domain struct {
	GUID       string   `json:"guid"`
	Name       string   `json:"name"` // in small letters
	Internal   bool     `json:"internal,omitempty"`
	Default    bool     `json:"default,omitempty"`     // gets the routes that name no domain
	Org        string   `json:"org,omitempty"`         // guid of the org that owns it; empty: all orgs share it
	SharedWith []string `json:"shared_with,omitempty"` // guids of further orgs that may use it
	// RouterGroup is the guid of what gives its routes their ports; empty: they are
	// told apart by name, and speak HTTP.
	RouterGroup string    `json:"router_group,omitempty"`
	Metadata    Metadata  `json:"metadata,omitzero"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// UsableIn tells whether spaces of the org may have routes in the domain.
func (d Domain) UsableIn(org string) bool {
	return d.Org == "" || d.Org == org || slices.Contains(d.SharedWith, org)
}

// TCP tells whether the routes of the domain have ports instead of names.
func (d Domain) TCP() bool { return d.RouterGroup != "" }

func (d Domain) Clone() Domain {
	d.SharedWith, d.Metadata = slices.Clone(d.SharedWith), d.Metadata.Clone()
	return d
}

// InternalDomain is the domain of routes that only other apps reach.
const InternalDomain = "apps.internal"
