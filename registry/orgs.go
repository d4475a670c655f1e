package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// OrgStore stores orgs, spaces and the metadata of users.
type OrgStore struct{ *tables }

// EnsureDefaults creates the org and the space of a first start, once, and missing shared
// domains. It returns the space, which is empty if it was deleted since. The named
// domain becomes the default one. Routes of an earlier default domain stay.
func (r *OrgStore) EnsureDefaults(domain string) (s app.Space, err error) {
	domain = strings.ToLower(domain)
	if err := checkDomain(domain); err != nil {
		return s, err
	}
	err = r.update(func(r *Registry) error {
		if s, err = r.firstSpace(); err != nil {
			return err
		}
		if err := r.ensureInternal(); err != nil {
			return err
		}
		return r.ensureDomain(domain)
	})
	return s, err
}

// Orgs returns all orgs by name.
func (r *OrgStore) Orgs() ([]app.Org, error) {
	return sorted(r.orgs, "orgs", func(a, b app.Org) int { return cmp.Compare(a.Name, b.Name) })
}

// Org returns the org with guid.
func (r *OrgStore) Org(guid string) (app.Org, error) { return get(r.orgs, "org", guid) }

// OrgByName returns the org with the name.
func (r *OrgStore) OrgByName(name string) (app.Org, error) {
	return oneBy(r.orgs, "name", name, "org")
}

// PutOrg stores o: it replaces the org with the same guid, or creates one.
func (r *OrgStore) PutOrg(o app.Org) (app.Org, error) {
	o.Metadata = o.Metadata.Clone()
	err := r.update(func(r *Registry) (err error) {
		o, err = r.putOrg(o)
		return err
	})
	return o, err
}

// UpdateOrg changes an org in one transaction.
func (r *OrgStore) UpdateOrg(guid string, fn func(o *app.Org) error) (o app.Org, err error) {
	err = r.update(func(r *Registry) error {
		if o, err = r.Org(guid); err != nil {
			return err
		}
		if err := fn(&o); err != nil {
			return err
		}
		o.GUID = guid
		o, err = r.putOrg(o)
		return err
	})
	return o, err
}

// DeleteOrg deletes an org with its spaces and everything in them, and its domains with
// their routes.
func (r *OrgStore) DeleteOrg(guid string) error {
	return r.update(func(r *Registry) error {
		if _, err := r.Org(guid); err != nil {
			return err
		}
		spaces, err := r.SpacesOf(guid)
		if err != nil {
			return err
		}
		for _, s := range spaces {
			if err := r.DeleteSpace(s.GUID); err != nil {
				return err
			}
		}
		if err := errors.Join(r.leaveDomains(guid), r.deleteQuotasOf(guid), r.leaveSegments(guid)); err != nil {
			return err
		}
		if err := r.orgs.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete org %s: %w", guid, err)
		}
		return nil
	})
}

// SpacesOf returns the spaces of an org by name.
func (r *OrgStore) SpacesOf(org string) ([]app.Space, error) {
	all, err := r.Spaces()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s app.Space) bool { return s.Org != org }), nil
}

// Spaces returns all spaces by name.
func (r *OrgStore) Spaces() ([]app.Space, error) {
	return sorted(r.spaces, "spaces", func(a, b app.Space) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Org, b.Org))
	})
}

// Space returns the space with guid.
func (r *OrgStore) Space(guid string) (app.Space, error) { return get(r.spaces, "space", guid) }

// SpaceIn returns the space with the name in an org.
func (r *OrgStore) SpaceIn(org, name string) (app.Space, error) {
	return oneBy(r.spaces, "org and name", org+"\x00"+name, "space")
}

// PutSpace stores s: it replaces the space with the same guid, or creates one.
func (r *OrgStore) PutSpace(s app.Space) (app.Space, error) {
	s.Metadata = s.Metadata.Clone()
	err := r.update(func(r *Registry) (err error) {
		s, err = r.putSpace(s)
		return err
	})
	return s, err
}

// UpdateSpace changes a space in one transaction.
func (r *OrgStore) UpdateSpace(guid string, fn func(s *app.Space) error) (s app.Space, err error) {
	err = r.update(func(r *Registry) error {
		if s, err = r.Space(guid); err != nil {
			return err
		}
		if err := fn(&s); err != nil {
			return err
		}
		s.GUID = guid
		s, err = r.putSpace(s)
		return err
	})
	return s, err
}

// DeleteSpace deletes a space with its apps and routes.
func (r *OrgStore) DeleteSpace(guid string) error {
	return r.update(func(r *Registry) error {
		if _, err := r.Space(guid); err != nil {
			return err
		}
		apps, err := r.AppsIn(guid)
		if err != nil {
			return err
		}
		for _, a := range apps {
			if err := r.DeleteApp(a.GUID); err != nil {
				return err
			}
		}
		if err := errors.Join(r.deleteRoutes(func(rt app.Route) bool { return rt.Space == guid }), r.leaveRoutes(guid), r.leaveSecurityGroups(guid)); err != nil {
			return err
		}
		if err := r.spaces.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete space %s: %w", guid, err)
		}
		return nil
	})
}

func (r *OrgStore) putOrg(o app.Org) (app.Org, error) {
	old, err := find(r.orgs, o.GUID)
	if err != nil {
		return o, err
	}
	o.GUID = cmp.Or(o.GUID, uuid.NewString())
	o.CreatedAt, o.UpdatedAt = timestamps(old.GUID != "", old.CreatedAt)
	var ps app.Violations
	ps.Name("name", o.Name)
	if err := errors.Join(ps.Err(), o.Metadata.Validate()); err != nil {
		return o, err
	}
	err = r.orgs.Put(o.GUID, o)
	if errors.Is(err, store.ErrTaken) {
		return o, &app.Invalid{Key: "name", Message: fmt.Sprintf("%q is taken by another org: choose another name", o.Name)}
	}
	if err != nil {
		return o, fmt.Errorf("cannot store org %q: %w", o.Name, err)
	}
	return o, nil
}

func (r *OrgStore) putSpace(s app.Space) (app.Space, error) {
	old, err := find(r.spaces, s.GUID)
	if err != nil {
		return s, err
	}
	if _, err := r.Org(s.Org); err != nil {
		return s, err
	}
	s.GUID = cmp.Or(s.GUID, uuid.NewString())
	s.CreatedAt, s.UpdatedAt = timestamps(old.GUID != "", old.CreatedAt)
	var ps app.Violations
	ps.Name("name", s.Name)
	if err := errors.Join(ps.Err(), s.Metadata.Validate()); err != nil {
		return s, err
	}
	err = r.spaces.Put(s.GUID, s)
	if errors.Is(err, store.ErrTaken) {
		return s, &app.Invalid{Key: "name", Message: fmt.Sprintf("%q is taken by another space of this org: choose another name", s.Name)}
	}
	if err != nil {
		return s, fmt.Errorf("cannot store space %q: %w", s.Name, err)
	}
	return s, nil
}

// firstSpace returns the space of the first start. If it was renamed or deleted since,
// it is not created again.
func (r *OrgStore) firstSpace() (app.Space, error) {
	done, err := r.firstStarts.Get(firstStartKey)
	if err == nil {
		s, err := r.Space(done.Space)
		if errors.Is(err, app.ErrNotFound) {
			return app.Space{}, nil
		}
		return s, err
	}
	if !errors.Is(err, store.ErrNotFound) {
		return app.Space{}, fmt.Errorf("cannot read the record of the first start: %w", err)
	}
	org, err := r.ensureOrg(app.DefaultOrg)
	if err != nil {
		return app.Space{}, err
	}
	s, err := r.ensureSpace(org.GUID, app.DefaultSpace)
	if err != nil {
		return s, err
	}
	if err := r.firstStarts.Put(firstStartKey, firstStart{Space: s.GUID}); err != nil {
		return s, fmt.Errorf("cannot store the record of the first start: %w", err)
	}
	return s, nil
}

func (r *OrgStore) ensureOrg(name string) (app.Org, error) {
	found, err := r.orgs.By("name", name)
	if err != nil {
		return app.Org{}, fmt.Errorf("cannot look up org %q: %w", name, err)
	}
	if len(found) > 0 {
		return found[0], nil
	}
	return r.putOrg(app.Org{Name: name})
}

func (r *OrgStore) ensureSpace(org, name string) (app.Space, error) {
	found, err := r.spaces.By("org and name", org+"\x00"+name)
	if err != nil {
		return app.Space{}, fmt.Errorf("cannot look up space %q: %w", name, err)
	}
	if len(found) > 0 {
		return found[0], nil
	}
	return r.putSpace(app.Space{Name: name, Org: org})
}

// maxGUID is the maximum length of guids that clients choose.
const maxGUID = 200

// Users returns the records about users, sorted by guid.
func (r *OrgStore) Users() ([]app.User, error) {
	all, err := r.users.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list users: %w", err)
	}
	return all, nil
}

// User returns the record about the user with guid.
func (r *OrgStore) User(guid string) (app.User, error) { return get(r.users, "user", guid) }

// PutUser stores u: it replaces the record about the user with the same guid.
func (r *OrgStore) PutUser(u app.User) (app.User, error) {
	u.Metadata = u.Metadata.Clone()
	err := r.update(func(r *Registry) error {
		old, err := find(r.users, u.GUID)
		if err != nil {
			return err
		}
		u.CreatedAt, u.UpdatedAt = timestamps(old.GUID != "" && !old.Gone, old.CreatedAt)
		var ps app.Violations
		if u.GUID == "" || len(u.GUID) > maxGUID {
			ps.Add("guid", "must have 1 to %d characters, not %d", maxGUID, len(u.GUID))
		}
		if err := errors.Join(ps.Err(), u.Metadata.Validate()); err != nil {
			return err
		}
		if err := r.users.Put(u.GUID, u); err != nil {
			return fmt.Errorf("cannot store user %s: %w", u.GUID, err)
		}
		return nil
	})
	return u, err
}

// firstStart records that the org and the space of a first start were created.
type firstStart struct {
	Space string `json:"space"` // guid; the space could have been renamed or deleted since
}

const firstStartKey = "done"
