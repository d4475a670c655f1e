package app

import "time"

// The org and the space that the first start creates.
const (
	DefaultOrg   = "local"
	DefaultSpace = "dev"
)

// Org is a group of spaces.
type Org struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Suspended bool      `json:"suspended,omitempty"` // only administrators can change its contents
	Quota     string    `json:"quota,omitempty"`     // guid; empty: unlimited
	Segment   string    `json:"segment,omitempty"`   // guid of the isolation segment of spaces that have none
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Space is a group of apps and routes in an org.
type Space struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Org       string    `json:"org"`               // guid
	NoSSH     bool      `json:"no_ssh,omitempty"`  // SSH into its instances is disabled
	Quota     string    `json:"quota,omitempty"`   // guid (empty: only the quota of its org)
	Segment   string    `json:"segment,omitempty"` // guid of its isolation segment (empty: its org's)
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// User is a record about a user, under the guid of the user's account. The account
// itself is stored elsewhere.
type User struct {
	GUID      string    `json:"guid"`
	Gone      bool      `json:"gone,omitempty"` // deleted in dew; the account can still exist
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}
