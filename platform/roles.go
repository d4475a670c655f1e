package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

// OpDeleteRole is the job that takes a role away.
const OpDeleteRole = "role.delete"

// roleAt is the place of a role, with names.
type roleAt struct {
	Org   app.Org
	space app.Space // zero: the role is one in the org
}

func (at roleAt) String() string {
	if at.space.GUID != "" {
		return fmt.Sprintf("space '%s'", at.space.Name)
	}
	return fmt.Sprintf("organization '%s'", at.Org.Name)
}

func (w Tx) PlaceOf(role auth.Role) (at roleAt, err error) {
	org := role.Org
	if role.Space != "" {
		if at.space, err = w.Registry.Space(role.Space); err != nil {
			return at, InvalidSpace(err)
		}
		org = at.space.Org
	}
	at.Org, err = w.Registry.Org(org)
	return at, InvalidOrg(err)
}

// Belongs tells whether somebody has a role in the org itself.
func (w Tx) Belongs(user, org string) bool {
	roles, err := w.Roles.OfUser(user)
	return err == nil && slices.ContainsFunc(roles, func(r auth.Role) bool { return r.Org == org })
}

// RecordRole keeps an event about a role that somebody got or lost.
func (w Tx) RecordRole(what string, role auth.Role, p Person, at roleAt) error {
	return w.Events.Record(app.Event{
		Type: "audit.user." + string(role.Type) + "_" + what, Actor: w.Actor, Space: at.space.GUID, Org: at.Org.GUID,
		Target: app.Target{GUID: p.GUID, Type: "user", Name: p.Called()},
		Data:   map[string]any{"request": map[string]any{"type": string(role.Type)}},
	})
}

// MayLeave refuses to take somebody out of an org who still has roles in it.
func (w Tx) MayLeave(role auth.Role) error {
	roles, err := w.Roles.OfUser(role.User)
	if err != nil {
		return err
	}
	for _, other := range roles {
		if other.Space == "" {
			continue
		}
		if sp, err := w.Registry.Space(other.Space); err == nil && sp.Org == role.Org {
			return Refuse("Cannot delete organization_user role while user has roles in spaces in that organization.")
		}
	}
	return nil
}

func (p *Platform) doDeleteRole(_ context.Context, guid string) error {
	if err := p.Roles.Delete(guid); err != nil && !errors.Is(err, auth.ErrNotFound) {
		return err
	}
	return nil
}
