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

// PutSegment stores s: it replaces the one with the same guid, or creates a new one.
func (r *LimitStore) PutSegment(s app.Segment) (app.Segment, error) {
	err := r.update(func(r *Registry) error {
		if s.GUID == app.SharedSegment().GUID {
			return fmt.Errorf("isolation segment shared %w", app.ErrBuiltIn)
		}
		old, err := find(r.segments, s.GUID)
		if err != nil {
			return err
		}
		s.GUID = cmp.Or(s.GUID, uuid.NewString())
		s.Orgs = distinct(s.Orgs)
		s.CreatedAt, s.UpdatedAt = timestamps(old.GUID != "", old.CreatedAt)
		var ps app.Violations
		ps.Name("name", s.Name)
		if err := errors.Join(ps.Err(), s.Metadata.Validate()); err != nil {
			return err
		}
		taken, err := r.segmentNamed(s.Name, s.GUID)
		if err != nil {
			return err
		}
		if taken {
			return app.NewRefusal("Isolation Segment names are case insensitive and must be unique. '%s' already exists.", s.Name)
		}
		return r.segments.Put(s.GUID, s)
	})
	if err != nil {
		return s, fmt.Errorf("cannot store isolation segment %q: %w", s.Name, err)
	}
	return s, nil
}

// segmentNamed reports whether another segment has the name, ignoring case.
func (r *LimitStore) segmentNamed(name, but string) (bool, error) {
	all, err := r.Segments()
	return slices.ContainsFunc(all, func(s app.Segment) bool { return s.GUID != but && strings.EqualFold(s.Name, name) }), err
}

// UpdateSegment changes an isolation segment in one transaction.
func (r *LimitStore) UpdateSegment(guid string, fn func(s *app.Segment) error) (s app.Segment, err error) {
	err = r.update(func(r *Registry) error {
		if s, err = r.Segment(guid); err != nil {
			return err
		}
		if err := fn(&s); err != nil {
			return err
		}
		s.GUID = guid
		s, err = r.PutSegment(s)
		return err
	})
	return s, err
}

// Segment returns the isolation segment with guid.
func (r *LimitStore) Segment(guid string) (app.Segment, error) {
	if guid == app.SharedSegment().GUID {
		return app.SharedSegment(), nil
	}
	return get(r.segments, "isolation segment", guid)
}

// Segments returns all isolation segments by name, including the shared one.
func (r *LimitStore) Segments() ([]app.Segment, error) {
	all, err := r.segments.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list isolation segments: %w", err)
	}
	all = append(all, app.SharedSegment())
	slices.SortFunc(all, func(a, b app.Segment) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// DeleteSegment deletes an isolation segment that no org is entitled to.
func (r *LimitStore) DeleteSegment(guid string) error {
	return r.update(func(r *Registry) error {
		s, err := r.Segment(guid)
		if err != nil {
			return err
		}
		if guid == app.SharedSegment().GUID {
			return fmt.Errorf("isolation segment shared %w", app.ErrBuiltIn)
		}
		if len(s.Orgs) > 0 {
			return app.NewRefusal("Revoke the Organization entitlements for your Isolation Segment '%s' first.", s.Name)
		}
		if err := r.segments.Delete(guid); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("cannot delete isolation segment %s: %w", guid, err)
		}
		return nil
	})
}

// Disentitle revokes the entitlement of an org, unless the org or one of its spaces uses
// the isolation segment.
func (r *LimitStore) Disentitle(guid, org string) error {
	return r.update(func(r *Registry) error {
		o, err := r.Org(org)
		if err != nil {
			return err
		}
		spaces, err := r.SpacesOf(org)
		if err != nil {
			return err
		}
		used := o.Segment == guid || slices.ContainsFunc(spaces, func(s app.Space) bool { return s.Segment == guid })
		if used {
			return app.NewRefusal("The isolation segment is in use. First remove it as the default of organization '%s', and from the spaces of this organization.", o.Name)
		}
		_, err = r.UpdateSegment(guid, func(s *app.Segment) error {
			s.Orgs = without(s.Orgs, org)
			return nil
		})
		return err
	})
}

// leaveSegments revokes all entitlements of an org that is being deleted.
func (r *LimitStore) leaveSegments(org string) error {
	all, err := r.segments.All()
	for _, s := range all {
		if slices.Contains(s.Orgs, org) {
			s.Orgs = without(s.Orgs, org)
			err = errors.Join(err, r.segments.Put(s.GUID, s))
		}
	}
	return err
}
