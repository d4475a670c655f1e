package app

import (
	"errors"
	"fmt"
	"time"
)

// User is what is written about somebody who has an account elsewhere, under the
// guid of the account.
type User struct {
	GUID      string    `json:"guid"`
	Gone      bool      `json:"gone,omitempty"` // was deleted here; the account may go on
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// maxGUID bounds the guids that others give.
const maxGUID = 200

// Users returns what is written about users, in the order of their guids.
func (r *Registry) Users() ([]User, error) {
	all, err := r.users.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list users: %w", err)
	}
	return all, nil
}

// User returns what is written about the user with guid.
func (r *Registry) User(guid string) (User, error) { return get(r.users, "user", guid) }

// PutUser keeps u in the place of what is written about the user with its guid.
func (r *Registry) PutUser(u User) (User, error) {
	u.Metadata = u.Metadata.clone()
	err := r.update(func(r *Registry) error {
		old, err := find(r.users, u.GUID)
		if err != nil {
			return err
		}
		u.CreatedAt, u.UpdatedAt = stamps(old.GUID != "" && !old.Gone, old.CreatedAt)
		var ps problems
		if u.GUID == "" || len(u.GUID) > maxGUID {
			ps.add("guid", "must have 1 to %d characters, not %d", maxGUID, len(u.GUID))
		}
		if err := errors.Join(ps.err(), u.Metadata.Validate()); err != nil {
			return err
		}
		if err := r.users.Put(u.GUID, u); err != nil {
			return fmt.Errorf("cannot keep user %s: %w", u.GUID, err)
		}
		return nil
	})
	return u, err
}
