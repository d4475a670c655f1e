package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
)

// Deletions runs the jobs that delete resources. Each job can run twice: a resource
// that no longer exists is not an error.
type Deletions struct{ *Platform }

// OpDeleteApp is the job that deletes an app.
const OpDeleteApp = "app.delete"

// deleteApp deletes an app and everything that belongs to it. An app that no longer
// exists is not an error, because the job can run twice.
func (del Deletions) deleteApp(ctx context.Context, guid string) error {
	return del.removeApp(ctx, guid, func(Tx, app.App) error { return nil })
}

// deleteApps deletes the apps of a space. It deletes the packages and droplets of an
// app first. If the daemon is killed in between, the app still exists, and so the next
// run finds the rest.
func (del Deletions) deleteApps(ctx context.Context, space string) error {
	apps, err := del.Registry.AppsIn(space)
	if err != nil {
		return err
	}
	for _, a := range apps {
		made, err := del.bitsOf(a.GUID)
		if err != nil {
			return err
		}
		if err := del.Change(ctx, func(w Tx) error { return w.recordBits(a, made) }); err != nil {
			return err
		}
		if err := del.Builds.DeleteApp(a.GUID); err != nil {
			return err
		}
		if err := del.removeApp(ctx, a.GUID, Tx.RecordDeletion); err != nil {
			return err
		}
	}
	return nil
}

// removeApp deletes an app with everything that belongs to it, and records the
// deletion. last records further events.
func (del Deletions) removeApp(ctx context.Context, guid string, last func(w Tx, a app.App) error) error {
	if err := del.ServiceBindings().unbind(ctx, guid); err != nil {
		return err
	}
	made, err := del.bitsOf(guid)
	if err != nil {
		return err
	}
	err = del.Change(ctx, func(w Tx) error {
		a, err := w.Registry.App(guid)
		if err != nil {
			return ignoreNotFound(err)
		}
		if err := errors.Join(w.recordEnd(a), w.recordBits(a, made), last(w, a)); err != nil {
			return err
		}
		return w.Registry.DeleteApp(guid)
	})
	if err != nil {
		return err
	}
	if err := del.Policies.RemoveApp(guid); err != nil {
		return err
	}
	return del.Builds.DeleteApp(guid)
}

// bits holds the packages and droplets of an app.
type bits struct {
	packages []droplet.Package
	droplets []droplet.Droplet
}

func (del Deletions) bitsOf(guid string) (b bits, err error) {
	if b.packages, err = del.Packages.OfApp(guid); err != nil {
		return b, err
	}
	b.droplets, err = del.Droplets.OfApp(guid)
	return b, err
}

// RecordDeletion records that the deletion of an app was requested.
func (w Tx) RecordDeletion(a app.App) error {
	return w.Record("audit.app.delete-request", a, map[string]any{"request": map[string]any{"recursive": true}})
}

func (w Tx) recordBits(a app.App, made bits) error {
	for _, p := range made.packages {
		if err := w.Record("audit.app.package.delete", a, map[string]any{"package_guid": p.GUID}); err != nil {
			return err
		}
	}
	for _, d := range made.droplets {
		if err := w.Record("audit.app.droplet.delete", a, map[string]any{"droplet_guid": d.GUID}); err != nil {
			return err
		}
	}
	return nil
}

// recordEnd records the effects of an app's deletion: the app stops, and its routes and
// processes are deleted.
func (w Tx) recordEnd(a app.App) error {
	if a.State == app.Started {
		if err := w.Record("audit.app.stop", a, map[string]any{"delete_triggered": true, "reason": "stopped as part of app deletion"}); err != nil {
			return err
		}
	}
	routes, err := w.Registry.RoutesOf(a.GUID)
	if err != nil {
		return err
	}
	for _, rt := range routes {
		left := rt
		left.Destinations = slices.DeleteFunc(slices.Clone(rt.Destinations), func(d app.Destination) bool { return d.App == a.GUID })
		if err := w.RecordMapping(rt, left, nil); err != nil {
			return err
		}
	}
	ps, err := w.Registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if err := w.RecordProcess("delete", a, p, nil); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotEmpty says that a resource was created in an org or space while it was being
// emptied.
var ErrNotEmpty = errors.New("a resource was created in the org or space during its deletion")

// DeleteOrg deletes an org and everything in it. If a resource cannot be deleted, its
// space and the org stay; the other spaces are deleted. An org that no longer exists is
// not an error, because the job can run twice.
func (del Deletions) DeleteOrg(ctx context.Context, guid string) error {
	return UntilEmpty(func() error {
		o, err := del.Registry.Org(guid)
		if errors.Is(err, app.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := del.clearOrg(ctx, o); err != nil {
			return err
		}
		return del.ChangeAs(app.Actor{}, func(w Tx) error { return w.dropOrg(guid) })
	})
}

// UntilEmpty empties and deletes an org or space, and repeats this while new resources
// appear in it. Deleting only their records would leave bits and services behind.
func UntilEmpty(remove func() error) error {
	for range maxRounds {
		if err := remove(); !errors.Is(err, ErrNotEmpty) {
			return err
		}
	}
	return Refuse("New apps or spaces keep appearing. Try again once nothing is being created")
}

// clearOrg deletes the spaces of an org.
func (del Deletions) clearOrg(ctx context.Context, o app.Org) error {
	spaces, err := del.Registry.SpacesOf(o.GUID)
	if err != nil {
		return err
	}
	var left []error
	for _, sp := range spaces {
		left = append(left, del.removeSpace(ctx, sp.GUID, Tx.RecordSpaceDeletion))
		if ctx.Err() != nil {
			return ctx.Err() // the next daemon continues
		}
	}
	if errors.Join(left...) == nil {
		left, err = del.sharedDomains(o.GUID)
	}
	return errors.Join(err, deletionFailed(orgDeletion, o.Name, left))
}

// sharedDomains returns an error for each domain of an org that other orgs use. They
// must stop using it first.
func (del Deletions) sharedDomains(org string) (left []error, err error) {
	all, err := del.Registry.Domains()
	for _, d := range all {
		if d.Org == org && slices.ContainsFunc(d.SharedWith, func(with string) bool { return with != org }) {
			left = append(left, fmt.Errorf("Domain '%s' is shared with other organizations. Unshare before deleting.", d.Name)) //nolint:staticcheck // the platform's words
		}
	}
	return left, err
}

// dropOrg deletes the record of an org that was emptied.
func (w Tx) dropOrg(guid string) error {
	spaces, err := w.Registry.SpacesOf(guid)
	if err != nil {
		return err
	}
	if len(spaces) > 0 {
		return ErrNotEmpty
	}
	if err := w.Roles.DeleteOrg(guid); err != nil {
		return err
	}
	if err := w.Registry.DeleteOrg(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// DeleteSpace deletes a space and everything in it. A space that no longer exists is
// not an error, because the job can run twice.
func (del Deletions) DeleteSpace(ctx context.Context, guid string) error {
	return del.removeSpace(ctx, guid, func(Tx, app.Space) error { return nil })
}

// removeSpace deletes a space and everything in it. last records further events.
func (del Deletions) removeSpace(ctx context.Context, guid string, last func(w Tx, sp app.Space) error) error {
	return UntilEmpty(func() error {
		sp, err := del.Registry.Space(guid)
		if errors.Is(err, app.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := del.ServiceBindings().clear(ctx, guid); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return deletionFailed(spaceDeletion, sp.Name, splitErrors(err))
		}
		if err := del.deleteApps(ctx, guid); err != nil {
			return err
		}
		return del.Change(ctx, func(w Tx) error { return errors.Join(last(w, sp), w.dropSpace(guid)) })
	})
}

// dropSpace deletes the record of a space that was emptied.
func (w Tx) dropSpace(guid string) error {
	apps, err := w.Registry.AppsIn(guid)
	if err != nil {
		return err
	}
	if len(apps) > 0 {
		return ErrNotEmpty
	}
	if err := w.Roles.DeleteSpace(guid); err != nil {
		return err
	}
	if err := w.Registry.DeleteSpace(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// The errors of Cloud Foundry for an org or space that could not be deleted.
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

// splitErrors returns the errors that were joined into err.
func splitErrors(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, err := range several.Unwrap() {
		out = append(out, splitErrors(err)...)
	}
	return out
}

// deletionFailed returns an error that names the remaining resources of an org or space
// and the reasons. It returns nil if nothing is left.
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

// OpDeleteSpace is the job that deletes a space.
const OpDeleteSpace = "space.delete"

// InvalidOrg returns the error for a request with an org that does not exist, or that
// the caller cannot see.
func InvalidOrg(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return Refuse("Invalid organization. Ensure the organization exists and you have access to it.")
	}
	return err
}

// Removal holds the arguments of jobs that delete one resource.
type Removal struct {
	GUID string `json:"guid"`
}

// HandleDeletions registers the jobs that delete resources.
func (p *Platform) HandleDeletions() {
	del := Deletions{p}
	for operation, do := range map[string]func(ctx context.Context, guid string) error{
		OpDeleteApp:    del.deleteApp,
		OpDeleteRoute:  del.deleteRoute,
		OpDeleteOrg:    del.DeleteOrg,
		OpDeleteSpace:  del.DeleteSpace,
		OpDeleteRole:   del.deleteRole,
		OpDeleteUser:   del.deleteUser,
		OpDeleteDomain: del.deleteDomain,

		OpDeletePackage: del.deletePackage,
		OpDeleteDroplet: del.deleteDroplet,

		OpDeleteOrgQuota:      del.deleteQuota,
		OpDeleteSpaceQuota:    del.deleteQuota,
		OpDeleteSecurityGroup: del.deleteSecurityGroup,
	} {
		p.Jobs.Handle(operation, func(ctx context.Context, j app.Job) ([]string, error) {
			var args Removal
			if err := json.Unmarshal(j.Args, &args); err != nil {
				return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
			}
			return nil, p.ForJob(do(ActingFor(ctx, j.By), args.GUID))
		})
	}
}

// ignoreNotFound returns nil if the resource that a job deletes no longer exists,
// because a job can run twice.
func ignoreNotFound(err error) error {
	if errors.Is(err, app.ErrNotFound) {
		return nil
	}
	return err
}

// RecordSpaceDeletion records that the deletion of a space was requested.
func (w Tx) RecordSpaceDeletion(sp app.Space) error {
	return w.RecordSpace("audit.space.delete-request", sp, map[string]any{"request": map[string]any{"recursive": true}})
}

// RecordSpace records an event about a space.
func (w Tx) RecordSpace(kind string, sp app.Space, data map[string]any) error {
	return w.Events.Record(app.Event{
		Type: kind, Actor: w.Actor, Data: data, Space: sp.GUID, Org: sp.Org,
		Target: app.Target{GUID: sp.GUID, Type: "space", Name: sp.Name},
	})
}

// OrgsOfSpaces returns the guid of the org for the guid of each space.
func (p *Platform) OrgsOfSpaces() (map[string]string, error) {
	all, err := p.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	orgs := make(map[string]string, len(all))
	for _, sp := range all {
		orgs[sp.GUID] = sp.Org
	}
	return orgs, nil
}

// The jobs that delete packages and droplets.
const (
	OpDeletePackage = "package.delete"
	OpDeleteDroplet = "droplet.delete"
)

// deletePackage deletes a package. A package that no longer exists is not an error,
// because the job can run twice.
func (del Deletions) deletePackage(_ context.Context, guid string) error {
	if err := del.Packages.Remove(guid); err != nil && !errors.Is(err, droplet.ErrNotFound) {
		return err
	}
	return nil
}

func (del Deletions) deleteDroplet(_ context.Context, guid string) error {
	err := del.Builds.Remove(guid, func(tx *store.Tx) error { return CheckNotRunning(del.Registry.With(tx), guid) })
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return del.ForJob(refused)
	}
	if err != nil && !errors.Is(err, droplet.ErrNotFound) {
		return err
	}
	return nil
}

// CheckNotRunning refuses to delete a droplet that instances use, or will be started
// from.
func CheckNotRunning(reg *registry.Registry, guid string) error {
	used, err := reg.DropletsInUse()
	if err != nil {
		return err
	}
	if used[guid] {
		return Refuse("Unable to delete droplet. The app or one of its tasks runs it. Set another current droplet and restart the app. Wait until the tasks have finished, or cancel them.")
	}
	return nil
}

// RecordDroplet records an event about a droplet, if its app exists.
func (w Tx) RecordDroplet(event string, d droplet.Droplet) error {
	a, err := w.Registry.App(d.App)
	if err != nil {
		return missing("App", err)
	}
	return w.Record(event, a, map[string]any{"droplet_guid": d.GUID})
}

// OpDeleteRole is the job that deletes a role.
const OpDeleteRole = "role.delete"

// roleTarget holds the org and the space of a role, with their names.
type roleTarget struct {
	Org   app.Org
	space app.Space // zero: it is a role in the org
}

func (at roleTarget) String() string {
	if at.space.GUID != "" {
		return fmt.Sprintf("space '%s'", at.space.Name)
	}
	return fmt.Sprintf("organization '%s'", at.Org.Name)
}

// RoleTarget returns the org or space that a role belongs to.
func (w Tx) RoleTarget(role auth.Role) (at roleTarget, err error) {
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

// HasOrgRole reports whether a user has a role in the org itself.
func (w Tx) HasOrgRole(user, org string) bool {
	roles, err := w.Roles.OfUser(user)
	return err == nil && slices.ContainsFunc(roles, func(r auth.Role) bool { return r.Org == org })
}

// RecordRole records an event about a role that was given to a user or removed.
func (w Tx) RecordRole(what string, role auth.Role, p Person, at roleTarget) error {
	return w.Events.Record(app.Event{
		Type: "audit.user." + string(role.Type) + "_" + what, Actor: w.Actor, Space: at.space.GUID, Org: at.Org.GUID,
		Target: app.Target{GUID: p.GUID, Type: "user", Name: p.DisplayName()},
		Data:   map[string]any{"request": map[string]any{"type": string(role.Type)}},
	})
}

// CheckLeaveOrg refuses to remove a user from an org in which the user still has roles.
func (w Tx) CheckLeaveOrg(role auth.Role) error {
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

func (del Deletions) deleteRole(_ context.Context, guid string) error {
	if err := del.Roles.Delete(guid); err != nil && !errors.Is(err, auth.ErrNotFound) {
		return err
	}
	return nil
}

// OpDeleteOrg is the job that deletes an org.
const OpDeleteOrg = "organization.delete"

// RecordOrg records an event about an org.
func (w Tx) RecordOrg(kind string, o app.Org, data map[string]any) error {
	return w.Events.Record(app.Event{
		Type: kind, Actor: w.Actor, Data: data, Org: o.GUID,
		Target: app.Target{GUID: o.GUID, Type: "organization", Name: o.Name},
	})
}

// OpDeleteUser is the job that deletes all roles of a user.
const OpDeleteUser = "user.delete"

// Person is a user or client that can have roles: an account, and the record about it.
type Person struct {
	GUID             string
	Name             string // empty: a client, or an account that no longer exists
	Origin           string
	Metadata         app.Metadata
	Created, Updated time.Time
}

// DisplayName returns the name of the person in responses.
func (p Person) DisplayName() string {
	if p.Name == "" {
		return p.GUID
	}
	return p.Name
}

// deleteUser deletes all roles of a user. It does not delete the account, which is
// stored elsewhere.
func (del Deletions) deleteUser(_ context.Context, guid string) error {
	return del.ChangeAs(app.Actor{}, func(w Tx) error {
		if err := w.Roles.DeleteUser(guid); err != nil {
			return err
		}
		_, err := w.Registry.PutUser(app.User{GUID: guid, Gone: true})
		return err
	})
}
