package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
)

// ErrInhabited says that somebody put something into a place while it was cleared.
var ErrInhabited = errors.New("something came into it meanwhile")

// DoDeleteOrg removes an org and everything in it. What cannot be deleted keeps its
// space and the org; the other spaces go. One that is gone already is fine: the job
// may be done twice.
func (p *Platform) DoDeleteOrg(ctx context.Context, guid string) error {
	return UntilEmpty(func() error {
		o, err := p.Registry.Org(guid)
		if errors.Is(err, app.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.clearOrg(ctx, o); err != nil {
			return err
		}
		return p.ChangeAs(app.Actor{}, func(w Tx) error { return w.dropOrg(guid) })
	})
}

// UntilEmpty clears and removes a place anew for as long as something comes into it:
// what is removed with its record alone would leave bits and services behind.
func UntilEmpty(remove func() error) error {
	for range maxRounds {
		if err := remove(); !errors.Is(err, ErrInhabited) {
			return err
		}
	}
	return Refuse("Apps and spaces are made faster than they can be deleted: try again when nobody does")
}

// clearOrg removes the spaces of an org.
func (p *Platform) clearOrg(ctx context.Context, o app.Org) error {
	spaces, err := p.Registry.SpacesOf(o.GUID)
	if err != nil {
		return err
	}
	var left []error
	for _, sp := range spaces {
		left = append(left, p.removeSpace(ctx, sp.GUID, Tx.RecordSpaceDeletion))
		if ctx.Err() != nil {
			return ctx.Err() // the next daemon goes on
		}
	}
	if errors.Join(left...) == nil {
		left, err = p.sharedDomains(o.GUID)
	}
	return errors.Join(err, deletionFailed(orgDeletion, o.Name, left))
}

// sharedDomains are the domains of an org that others use: they have to do without
// first.
func (p *Platform) sharedDomains(org string) (left []error, err error) {
	all, err := p.Registry.Domains()
	for _, d := range all {
		if d.Org == org && slices.ContainsFunc(d.SharedWith, func(with string) bool { return with != org }) {
			left = append(left, fmt.Errorf("Domain '%s' is shared with other organizations. Unshare before deleting.", d.Name)) //nolint:staticcheck // the platform's words
		}
	}
	return left, err
}

// dropOrg removes the record of an org that was cleared.
func (w Tx) dropOrg(guid string) error {
	spaces, err := w.Registry.SpacesOf(guid)
	if err != nil {
		return err
	}
	if len(spaces) > 0 {
		return ErrInhabited
	}
	if err := w.Roles.DeleteOrg(guid); err != nil {
		return err
	}
	if err := w.Registry.DeleteOrg(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// DoDeleteSpace removes a space and everything in it. One that is gone already is
// fine: the job may be done twice.
func (p *Platform) DoDeleteSpace(ctx context.Context, guid string) error {
	return p.removeSpace(ctx, guid, func(Tx, app.Space) error { return nil })
}

// removeSpace is doDeleteSpace, with last to say more when all of it is gone.
func (p *Platform) removeSpace(ctx context.Context, guid string, last func(w Tx, sp app.Space) error) error {
	return UntilEmpty(func() error {
		sp, err := p.Registry.Space(guid)
		if errors.Is(err, app.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.clearServices(ctx, guid); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return deletionFailed(spaceDeletion, sp.Name, joined(err))
		}
		if err := p.deleteApps(ctx, guid); err != nil {
			return err
		}
		return p.Change(ctx, func(w Tx) error { return errors.Join(last(w, sp), w.dropSpace(guid)) })
	})
}

// dropSpace removes the record of a space that was cleared.
func (w Tx) dropSpace(guid string) error {
	apps, err := w.Registry.AppsIn(guid)
	if err != nil {
		return err
	}
	if len(apps) > 0 {
		return ErrInhabited
	}
	if err := w.Roles.DeleteSpace(guid); err != nil {
		return err
	}
	if err := w.Registry.DeleteSpace(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// How the platform says that a place could not be deleted.
var (
	orgDeletion = app.JobError{
		Code: 290010, Title: "CF-OrganizationDeletionFailed",
		Detail: "Deletion of organization %s failed because one or more resources within could not be deleted.\n\n%s",
	}
	spaceDeletion = app.JobError{
		Code: 290008, Title: "CF-SpaceDeletionFailed",
		Detail: "Deletion of space %s failed because one or more resources within could not be deleted.\n\n%s",
	}
)

// joined are the errors that were joined to one.
func joined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, err := range several.Unwrap() {
		out = append(out, joined(err)...)
	}
	return out
}

// deletionFailed names what is left of a place and why; nil where nothing is.
func deletionFailed(as app.JobError, name string, left []error) error {
	var texts []string
	for _, err := range left {
		if err != nil && !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return &app.JobError{Code: as.Code, Title: as.Title, Detail: fmt.Sprintf(as.Detail, name, strings.Join(texts, "\n\n"))}
}
