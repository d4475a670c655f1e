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

// LimitStore stores quotas, security groups and isolation segments.
type LimitStore struct{ *tables }

// PutQuota stores q: it replaces the quota with the same guid, or creates one.
func (r *LimitStore) PutQuota(q app.Quota) (app.Quota, error) {
	err := r.update(func(r *Registry) error {
		old, err := find(r.quotas, q.GUID)
		if err != nil {
			return err
		}
		if q.Org != "" {
			if _, err := r.Org(q.Org); err != nil {
				return err
			}
		}
		q.GUID = cmp.Or(q.GUID, uuid.NewString())
		q.CreatedAt, q.UpdatedAt = timestamps(old.GUID != "", old.CreatedAt)
		if err := q.Validate(); err != nil {
			return err
		}
		err = r.quotas.Put(q.GUID, q)
		if errors.Is(err, store.ErrTaken) {
			return q.Taken()
		}
		return err
	})
	if err != nil {
		return q, fmt.Errorf("cannot store quota %q: %w", q.Name, err)
	}
	return q, nil
}

// UpdateQuota changes a quota in one transaction.
func (r *LimitStore) UpdateQuota(guid string, fn func(q *app.Quota) error) (q app.Quota, err error) {
	err = r.update(func(r *Registry) error {
		if guid == app.Unlimited().GUID {
			return fmt.Errorf("quota %s %w: create another quota and apply it", app.NoQuota, app.ErrBuiltIn)
		}
		if q, err = r.Quota(guid); err != nil {
			return err
		}
		if err := fn(&q); err != nil {
			return err
		}
		q.GUID = guid
		q, err = r.PutQuota(q)
		return err
	})
	return q, err
}

// Quota returns the quota with guid.
func (r *LimitStore) Quota(guid string) (app.Quota, error) {
	if guid == app.Unlimited().GUID {
		return app.Unlimited(), nil
	}
	return get(r.quotas, "quota", guid)
}

// OrgQuotas returns the quotas for orgs by name, and last the unlimited one.
func (r *LimitStore) OrgQuotas() ([]app.Quota, error) {
	all, err := r.selectQuotas(func(q app.Quota) bool { return q.Org == "" })
	return append(all, app.Unlimited()), err
}

// SpaceQuotas returns the quotas for spaces by name.
func (r *LimitStore) SpaceQuotas() ([]app.Quota, error) {
	return r.selectQuotas(func(q app.Quota) bool { return q.Org != "" })
}

func (r *LimitStore) selectQuotas(among func(q app.Quota) bool) ([]app.Quota, error) {
	all, err := sorted(r.quotas, "quotas", func(a, b app.Quota) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(q app.Quota) bool { return !among(q) }), err
}

// DeleteQuota deletes a quota. Orgs and spaces that had it have none afterwards.
func (r *LimitStore) DeleteQuota(guid string) error {
	return r.update(func(r *Registry) error {
		if guid == app.Unlimited().GUID {
			return fmt.Errorf("quota %s %w", app.NoQuota, app.ErrBuiltIn)
		}
		if _, err := r.Quota(guid); err != nil {
			return err
		}
		if err := errors.Join(r.dropFromOrgs(guid), r.dropFromSpaces(guid)); err != nil {
			return err
		}
		if err := r.quotas.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete quota %s: %w", guid, err)
		}
		return nil
	})
}

func (r *LimitStore) dropFromOrgs(guid string) error {
	orgs, err := r.registry().Orgs()
	for _, o := range orgs {
		if o.Quota == guid {
			o.Quota = ""
			err = errors.Join(err, r.orgs.Put(o.GUID, o))
		}
	}
	return err
}

func (r *LimitStore) dropFromSpaces(guid string) error {
	spaces, err := r.registry().Spaces()
	for _, s := range spaces {
		if s.Quota == guid {
			s.Quota = ""
			err = errors.Join(err, r.spaces.Put(s.GUID, s))
		}
	}
	return err
}

// deleteQuotasOf deletes the space quotas of an org that is being deleted.
func (r *LimitStore) deleteQuotasOf(org string) error {
	all, err := r.SpaceQuotas()
	for _, q := range all {
		if q.Org == org {
			err = errors.Join(err, r.quotas.Delete(q.GUID))
		}
	}
	return err
}
