package registry

import (
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
)

// maxGUID bounds the guids that others give.
const maxGUID = 200

// Users returns what is written about users, in the order of their guids.
func (r *Registry) Users() ([]app.User, error) {
	all, err := r.users.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list users: %w", err)
	}
	return all, nil
}

// User returns what is written about the user with guid.
func (r *Registry) User(guid string) (app.User, error) { return get(r.users, "user", guid) }

// PutUser keeps u in the place of what is written about the user with its guid.
func (r *Registry) PutUser(u app.User) (app.User, error) {
	u.Metadata = u.Metadata.Clone()
	err := r.update(func(r *Registry) error {
		old, err := find(r.users, u.GUID)
		if err != nil {
			return err
		}
		u.CreatedAt, u.UpdatedAt = stamps(old.GUID != "" && !old.Gone, old.CreatedAt)
		var ps app.Violations
		if u.GUID == "" || len(u.GUID) > maxGUID {
			ps.Add("guid", "must have 1 to %d characters, not %d", maxGUID, len(u.GUID))
		}
		if err := errors.Join(ps.Err(), u.Metadata.Validate()); err != nil {
			return err
		}
		if err := r.users.Put(u.GUID, u); err != nil {
			return fmt.Errorf("cannot keep user %s: %w", u.GUID, err)
		}
		return nil
	})
	return u, err
}
