package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// PutSecurityGroup stores g: it replaces the one with the same guid, or creates a new one.
func (r *LimitStore) PutSecurityGroup(g app.SecurityGroup) (app.SecurityGroup, error) {
	err := r.update(func(r *Registry) error {
		old, err := find(r.securityGroups, g.GUID)
		if err != nil {
			return err
		}
		for _, space := range slices.Concat(g.Runs, g.Stages) {
			if _, err := r.Space(space); err != nil {
				return err
			}
		}
		g.GUID = cmp.Or(g.GUID, uuid.NewString())
		g.Runs, g.Stages = distinct(g.Runs), distinct(g.Stages)
		g.CreatedAt, g.UpdatedAt = timestamps(old.GUID != "", old.CreatedAt)
		if err := g.Validate(); err != nil {
			return err
		}
		err = r.securityGroups.Put(g.GUID, g)
		if errors.Is(err, store.ErrTaken) {
			return app.NewRefusal("Security group with name '%s' already exists.", g.Name)
		}
		return err
	})
	if err != nil {
		return g, fmt.Errorf("cannot store security group %q: %w", g.Name, err)
	}
	return g, nil
}

// UpdateSecurityGroup changes a security group in one transaction.
func (r *LimitStore) UpdateSecurityGroup(guid string, fn func(g *app.SecurityGroup) error) (g app.SecurityGroup, err error) {
	err = r.update(func(r *Registry) error {
		if g, err = r.SecurityGroup(guid); err != nil {
			return err
		}
		if err := fn(&g); err != nil {
			return err
		}
		g.GUID = guid
		g, err = r.PutSecurityGroup(g)
		return err
	})
	return g, err
}

// ListenSecurityGroups calls fn after every change of a security group.
func (r *LimitStore) ListenSecurityGroups(fn func(guid string)) { r.securityGroups.Listen(fn) }

// SecurityGroup returns the security group with guid.
func (r *LimitStore) SecurityGroup(guid string) (app.SecurityGroup, error) {
	return get(r.securityGroups, "security group", guid)
}

// SecurityGroups returns all security groups by name.
func (r *LimitStore) SecurityGroups() ([]app.SecurityGroup, error) {
	return sorted(r.securityGroups, "security groups", func(a, b app.SecurityGroup) int { return cmp.Compare(a.Name, b.Name) })
}

// DeleteSecurityGroup deletes a security group.
func (r *LimitStore) DeleteSecurityGroup(guid string) error {
	return r.update(func(r *Registry) error {
		if _, err := r.SecurityGroup(guid); err != nil {
			return err
		}
		if err := r.securityGroups.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete security group %s: %w", guid, err)
		}
		return nil
	})
}

// leaveSecurityGroups removes a space that is being deleted from all security groups.
func (r *LimitStore) leaveSecurityGroups(space string) error {
	all, err := r.SecurityGroups()
	for _, g := range all {
		if !slices.Contains(g.Runs, space) && !slices.Contains(g.Stages, space) {
			continue
		}
		g.Runs, g.Stages = without(g.Runs, space), without(g.Stages, space)
		err = errors.Join(err, r.securityGroups.Put(g.GUID, g))
	}
	return err
}
