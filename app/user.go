package app

import "time"

// User is what is written about somebody who has an account elsewhere, under the
// guid of the account.
type User struct {
	GUID      string    `json:"guid"`
	Gone      bool      `json:"gone,omitempty"` // was deleted here; the account may go on
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}
