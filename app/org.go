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
	Suspended bool      `json:"suspended,omitempty"` // only administrators change what is in it
	Quota     string    `json:"quota,omitempty"`     // guid; empty: it is unlimited
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
	NoSSH     bool      `json:"no_ssh,omitempty"`  // nobody enters its instances
	Quota     string    `json:"quota,omitempty"`   // guid; empty: only its org's
	Segment   string    `json:"segment,omitempty"` // guid of its isolation segment; empty: its org's
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// User is a record about a user, under the guid of the user's account. The account
// itself is stored elsewhere.
type User struct {
	GUID      string    `json:"guid"`
	Gone      bool      `json:"gone,omitempty"` // was deleted here; the account may go on
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}
