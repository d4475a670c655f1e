package platform

import (
	"context"
	"time"

	"github.com/dewrun/dew/app"
)

// OpDeleteUser is the job that takes all roles of a user away.
const OpDeleteUser = "user.delete"

// Person is somebody who may have roles: an account, and what is written about it.
type Person struct {
	GUID             string
	Name             string // empty: a client, or an account that is gone
	Origin           string
	Metadata         app.Metadata
	Created, Updated time.Time
}

// Called is how answers name the person.
func (p Person) Called() string {
	if p.Name == "" {
		return p.GUID
	}
	return p.Name
}

// doDeleteUser takes all roles of somebody away. The account is another matter:
// whoever keeps it may delete it too.
func (p *Platform) doDeleteUser(_ context.Context, guid string) error {
	return p.ChangeAs(app.Actor{}, func(w Tx) error {
		if err := w.Roles.DeleteUser(guid); err != nil {
			return err
		}
		_, err := w.Registry.PutUser(app.User{GUID: guid, Gone: true})
		return err
	})
}
