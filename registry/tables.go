package registry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// tables are the buckets of all subjects, and the transaction that they are read and
// written in. Every subject embeds them, and reaches other subjects through registry.
type tables struct {
	db *store.DB
	tx *store.Tx // nil means that each method has its own

	apps      store.Bucket[app.App]
	processes store.Bucket[app.Process]
	sidecars  store.Bucket[app.Sidecar]

	deployments store.Bucket[app.Deployment]
	revisions   store.Bucket[app.Revision]
	tasks       store.Bucket[app.Task]

	routes       store.Bucket[app.Route]
	routerGroups store.Bucket[app.RouterGroup]
	domains      store.Bucket[app.Domain]

	orgs        store.Bucket[app.Org]
	spaces      store.Bucket[app.Space]
	users       store.Bucket[app.User]
	firstStarts store.Bucket[firstStart]

	quotas         store.Bucket[app.Quota]
	securityGroups store.Bucket[app.SecurityGroup]
	segments       store.Bucket[app.Segment]

	flags           store.Bucket[app.Flag]
	envGroups       store.Bucket[app.EnvGroup]
	builtInMetadata store.Bucket[app.Metadata] // by the guid of a built-in resource such as a stack
	usage           store.Bucket[app.Usage]
}

func newTables(db *store.DB) *tables {
	return &tables{
		db: db,
		apps: store.In(db, "apps",
			store.Cached(app.App.Clone),
			store.Index("name", func(a app.App) string { return a.Name }),
			store.Unique("space and name", func(a app.App) string { return a.Space + "\x00" + a.Name })),
		processes: store.In(db, "processes",
			store.Cached(app.Process.Clone),
			store.Index("app", func(p app.Process) string { return p.App }),
			store.Unique("app and type", func(p app.Process) string { return p.App + "\x00" + p.Type })),
		sidecars: store.In(db, "sidecars",
			store.Index("app", func(s app.Sidecar) string { return s.App }),
			store.Unique("app and name", func(s app.Sidecar) string { return s.App + "\x00" + s.UpperName() })),
		deployments: deploymentBucket(db),
		revisions: store.In(db, "revisions",
			store.Index("app", func(v app.Revision) string { return v.App }),
			store.Index("made", func(v app.Revision) string { return fmt.Sprintf("%s %020d", v.App, v.CreatedAt.UnixNano()) }),
		),
		tasks: taskBucket(db),
		routes: store.In(db, "routes",
			store.Cached(app.Route.Clone),
			store.Unique("place", app.Route.UniqueKey)),
		routerGroups: store.In(db, "router_groups",
			store.Unique("name", func(g app.RouterGroup) string { return g.Name })),
		domains: store.In(db, "domains",
			store.Unique("name", func(d app.Domain) string { return d.Name })),
		orgs: store.In(db, "orgs",
			store.Unique("name", func(o app.Org) string { return o.Name })),
		spaces: store.In(db, "spaces",
			store.Unique("org and name", func(s app.Space) string { return s.Org + "\x00" + s.Name })),
		users:       store.In[app.User](db, PeopleBucket), // package auth has a bucket named users
		firstStarts: store.In[firstStart](db, "first_start"),
		quotas: store.In(db, "quotas",
			store.Unique("org and name", func(q app.Quota) string { return q.Org + "\x00" + q.Name })),
		securityGroups: store.In(db, "security_groups",
			store.Unique("name", func(g app.SecurityGroup) string { return g.Name })),
		segments: store.In(db, "segments",
			store.Unique("name", func(s app.Segment) string { return s.Name })),
		flags:           store.In[app.Flag](db, "flags"),
		envGroups:       store.In[app.EnvGroup](db, "variable_groups"),
		builtInMetadata: store.In[app.Metadata](db, "notes"),
		usage:           store.In[app.Usage](db, "usage"),
	}
}

// with returns the tables inside tx.
func (t *tables) with(tx *store.Tx) *tables {
	return &tables{
		db: t.db, tx: tx,
		apps: t.apps.With(tx), processes: t.processes.With(tx), sidecars: t.sidecars.With(tx),
		deployments: t.deployments.With(tx), revisions: t.revisions.With(tx), tasks: t.tasks.With(tx),
		routes: t.routes.With(tx), routerGroups: t.routerGroups.With(tx), domains: t.domains.With(tx),
		orgs: t.orgs.With(tx), spaces: t.spaces.With(tx), users: t.users.With(tx), firstStarts: t.firstStarts.With(tx),
		quotas: t.quotas.With(tx), securityGroups: t.securityGroups.With(tx), segments: t.segments.With(tx),
		flags: t.flags.With(tx), envGroups: t.envGroups.With(tx), builtInMetadata: t.builtInMetadata.With(tx),
		usage: t.usage.With(tx),
	}
}

// registry returns all subjects on these tables.
func (t *tables) registry() *Registry {
	return &Registry{
		tables:          t,
		AppStore:        &AppStore{t},
		DeploymentStore: &DeploymentStore{t},
		RevisionStore:   &RevisionStore{t},
		TaskStore:       &TaskStore{t},
		RouteStore:      &RouteStore{t},
		DomainStore:     &DomainStore{t},
		OrgStore:        &OrgStore{t},
		LimitStore:      &LimitStore{t},
		SettingStore:    &SettingStore{t},
		UsageStore:      &UsageStore{t},
		Manifests:       &Manifests{t},
	}
}

// update runs fn in a transaction: the present one, or a new one.
func (t *tables) update(fn func(r *Registry) error) error {
	if t.tx != nil {
		return fn(t.registry())
	}
	return t.db.Update(func(tx *store.Tx) error { return fn(t.with(tx).registry()) })
}

// view is update for reading: fn sees one state of all buckets.
func (t *tables) view(fn func(r *Registry) error) error {
	if t.tx != nil {
		return fn(t.registry())
	}
	return t.db.View(func(tx *store.Tx) error { return fn(t.with(tx).registry()) })
}

// sorted returns all values of a bucket, sorted.
func sorted[T any](b store.Bucket[T], nouns string, compare func(a, b T) int) ([]T, error) {
	return sortedWhere(b, nouns, compare, nil)
}

// sortedWhere returns the values for which keep returns true.
func sortedWhere[T any](b store.Bucket[T], nouns string, compare func(a, b T) int, keep func(T) bool) ([]T, error) {
	all, err := b.Where(keep)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", nouns, err)
	}
	slices.SortStableFunc(all, compare)
	return all, nil
}

// get returns a value that must exist.
func get[T any](b store.Bucket[T], noun, guid string) (v T, err error) {
	v, err = b.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s %s: %w", noun, guid, app.ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read %s %s: %w", noun, guid, err)
	}
	return v, nil
}

// find returns a value, or the zero value if it does not exist.
func find[T any](b store.Bucket[T], guid string) (v T, err error) {
	v, err = b.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	return v, err
}

func distinct(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

// timestamps returns the times of a value that is stored now.
func timestamps(known bool, created time.Time) (createdAt, updatedAt time.Time) {
	t := app.Now()
	if known {
		return created, t
	}
	return t, t
}

// oneBy returns the value that has the given value in a unique index.
func oneBy[T any](b store.Bucket[T], index, value, noun string) (v T, err error) {
	found, err := b.By(index, value)
	if err != nil {
		return v, fmt.Errorf("cannot look up %s: %w", noun, err)
	}
	if len(found) == 0 {
		return v, fmt.Errorf("%s: %w", noun, app.ErrNotFound)
	}
	return found[0], nil
}

// PeopleBucket is the name of the bucket of users.
const PeopleBucket = "people"
