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

// Registry remembers the wishes. Every method is one transaction; With makes
// several of them one.
type Registry struct {
	db        *store.DB
	tx        *store.Tx // nil: each method has its own
	apps      *store.Bucket[app.App]
	processes *store.Bucket[app.Process]
	sidecars  *store.Bucket[app.Sidecar]
	orgs      *store.Bucket[app.Org]
	spaces    *store.Bucket[app.Space]
	users     *store.Bucket[app.User]
	domains   *store.Bucket[app.Domain]
	routes    *store.Bucket[app.Route]
	groups    *store.Bucket[app.RouterGroup]
	flags     *store.Bucket[app.Flag]
	notes     *store.Bucket[app.Metadata] // of what is built in, by guid
	tasks     *store.Bucket[app.Task]
	records   records

	deployments *store.Bucket[app.Deployment]
	revisions   *store.Bucket[app.Revision]
}

// New returns the registry that lives in db.
func New(db *store.DB) *Registry {
	return &Registry{
		db: db,
		apps: store.In(db, "apps",
			store.Index("name", func(a app.App) string { return a.Name }),
			store.Unique("space and name", func(a app.App) string { return a.Space + "\x00" + a.Name })),
		processes: store.In(db, "processes",
			store.Index("app", func(p app.Process) string { return p.App }),
			store.Unique("app and type", func(p app.Process) string { return p.App + "\x00" + p.Type })),
		sidecars: store.In(db, "sidecars",
			store.Index("app", func(s app.Sidecar) string { return s.App }),
			store.Unique("app and name", func(s app.Sidecar) string { return s.App + "\x00" + s.UpperName() })),
		orgs: store.In(db, "orgs",
			store.Unique("name", func(o app.Org) string { return o.Name })),
		spaces: store.In(db, "spaces",
			store.Unique("org and name", func(s app.Space) string { return s.Org + "\x00" + s.Name })),
		users: store.In[app.User](db, "people"), // the accounts are called users
		domains: store.In(db, "domains",
			store.Unique("name", func(d app.Domain) string { return d.Name })),
		routes: store.In(db, "routes",
			store.Unique("place", app.Route.UniqueKey)),
		groups: store.In(db, "router_groups",
			store.Unique("name", func(g app.RouterGroup) string { return g.Name })),
		flags: store.In[app.Flag](db, "flags"),
		notes: store.In[app.Metadata](db, "notes"),
		tasks: taskBucket(db), records: newRecords(db),

		deployments: deploymentBucket(db), revisions: revisionBucket(db),
	}
}

// With returns the registry inside tx.
func (r *Registry) With(tx *store.Tx) *Registry {
	return &Registry{
		db: r.db, tx: tx,
		apps: r.apps.With(tx), processes: r.processes.With(tx), sidecars: r.sidecars.With(tx),
		orgs: r.orgs.With(tx), spaces: r.spaces.With(tx), users: r.users.With(tx), domains: r.domains.With(tx), routes: r.routes.With(tx),
		groups: r.groups.With(tx), flags: r.flags.With(tx), notes: r.notes.With(tx), tasks: r.tasks.With(tx), records: r.records.with(tx),
		deployments: r.deployments.With(tx), revisions: r.revisions.With(tx),
	}
}

// Listen calls fn with the guid of every process whose wish changed, after the
// commit, also when its app or a sidecar of it changed, and when it was deleted.
// See store.Bucket.Listen for what fn may do.
func (r *Registry) Listen(fn func(process string)) { r.processes.Listen(fn) }

// PutApp keeps a in the place of the app with its guid, or as a new app with a
// web process. It returns what was kept, with guid, state and times filled in.
func (r *Registry) PutApp(a app.App) (app.App, error) {
	a = a.Clone()
	err := r.update(func(r *Registry) (err error) {
		a, err = r.putApp(a)
		return err
	})
	return a, err
}

// UpdateApp changes an app in one transaction.
func (r *Registry) UpdateApp(guid string, fn func(a *app.App) error) (a app.App, err error) {
	err = r.update(func(r *Registry) error {
		if a, err = r.App(guid); err != nil {
			return err
		}
		if err := fn(&a); err != nil {
			return err
		}
		a.GUID = guid
		a, err = r.putApp(a)
		return err
	})
	return a, err
}

// App returns the app with guid.
func (r *Registry) App(guid string) (app.App, error) { return get(r.apps, "app", guid) }

// AppByName returns the app with the name, if there is only one in all spaces.
func (r *Registry) AppByName(name string) (app.App, error) {
	found, err := r.apps.By("name", name)
	if err != nil {
		return app.App{}, fmt.Errorf("cannot look for app %q: %w", name, err)
	}
	switch len(found) {
	case 0:
		return app.App{}, fmt.Errorf("app %q: %w", name, app.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return app.App{}, fmt.Errorf("cannot choose app %q: %d spaces have one: say which space", name, len(found))
}

// AppIn returns the app with the name in a space.
func (r *Registry) AppIn(space, name string) (app.App, error) {
	found, err := r.apps.By("space and name", space+"\x00"+name)
	if err != nil {
		return app.App{}, fmt.Errorf("cannot look for app %q: %w", name, err)
	}
	if len(found) == 0 {
		return app.App{}, fmt.Errorf("app %q: %w", name, app.ErrNotFound)
	}
	return found[0], nil
}

// Apps returns all apps by name.
func (r *Registry) Apps() ([]app.App, error) {
	return sorted(r.apps, "apps", func(a, b app.App) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Space, b.Space))
	})
}

// DeleteApp removes an app with its processes and sidecars, and takes it out of
// its routes.
func (r *Registry) DeleteApp(guid string) error {
	return r.update(func(r *Registry) error {
		a, err := r.App(guid)
		if err != nil {
			return err
		}
		if err := r.noteStates(a, a.AsStopped()); err != nil {
			return err
		}
		processes, err := r.Processes(guid)
		if err != nil {
			return err
		}
		sidecars, err := r.Sidecars(guid)
		if err != nil {
			return err
		}
		if err := errors.Join(r.unmap(guid), r.deleteTasks(guid), r.forgetDeployments(guid)); err != nil {
			return err
		}
		for _, p := range processes {
			if err := r.processes.Delete(p.GUID); err != nil {
				return fmt.Errorf("cannot delete process %s: %w", p.GUID, err)
			}
		}
		for _, s := range sidecars {
			if err := r.sidecars.Delete(s.GUID); err != nil {
				return fmt.Errorf("cannot delete sidecar %s: %w", s.GUID, err)
			}
		}
		if err := r.apps.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete app %s: %w", guid, err)
		}
		return nil
	})
}

// Restart wishes for new instances in the place of all that run: every process of
// the app gets a new version that is the only current one. It does not start an
// app that is stopped.
func (r *Registry) Restart(guid string) error {
	return r.update(func(r *Registry) error {
		a, err := r.App(guid)
		if err != nil {
			return err
		}
		if err := r.renewOthers(guid); err != nil {
			return err
		}
		return r.eachProcess(guid, func(p app.Process) (app.Process, error) { return r.startAnew(a, p) })
	})
}

// PutProcess keeps p in the place of the process with its guid, or as a new one.
// It returns what was kept; Version, Generation and what goes with them are the
// Registry's alone.
func (r *Registry) PutProcess(p app.Process) (app.Process, error) {
	p = p.Clone()
	err := r.update(func(r *Registry) (err error) {
		p, err = r.putProcess(p)
		return err
	})
	return p, err
}

// UpdateProcess changes a process in one transaction.
func (r *Registry) UpdateProcess(guid string, fn func(p *app.Process) error) (p app.Process, err error) {
	err = r.update(func(r *Registry) error {
		if p, err = r.Process(guid); err != nil {
			return err
		}
		if err := fn(&p); err != nil {
			return err
		}
		p.GUID = guid
		p, err = r.putProcess(p)
		return err
	})
	return p, err
}

// Process returns the process with guid.
func (r *Registry) Process(guid string) (app.Process, error) {
	return get(r.processes, "process", guid)
}

// Processes returns the processes of an app by type, web first.
func (r *Registry) Processes(appGUID string) ([]app.Process, error) {
	ps, err := r.processes.By("app", appGUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes of app %s: %w", appGUID, err)
	}
	slices.SortFunc(ps, func(a, b app.Process) int {
		if (a.Type == app.Web) != (b.Type == app.Web) {
			return cmp.Compare(rank(a.Type), rank(b.Type))
		}
		return cmp.Compare(a.Type, b.Type)
	})
	return ps, nil
}

// AllProcesses returns the processes of all apps, in one reading.
func (r *Registry) AllProcesses() ([]app.Process, error) {
	return sorted(r.processes, "processes", func(a, b app.Process) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(rank(a.Type), rank(b.Type)), cmp.Compare(a.Type, b.Type))
	})
}

func rank(processType string) int {
	if processType == app.Web {
		return 0
	}
	return 1
}

func (r *Registry) update(fn func(r *Registry) error) error {
	if r.tx != nil {
		return fn(r)
	}
	return r.db.Update(func(tx *store.Tx) error { return fn(r.With(tx)) })
}

// view shows one state of all buckets.
func (r *Registry) view(fn func(r *Registry) error) error {
	if r.tx != nil {
		return fn(r)
	}
	return r.db.View(func(tx *store.Tx) error { return fn(r.With(tx)) })
}

func (r *Registry) putApp(a app.App) (app.App, error) {
	old, err := find(r.apps, a.GUID)
	if err != nil {
		return a, err
	}
	fresh := old.GUID == ""
	if a.GUID == "" {
		a.GUID = uuid.NewString()
	}
	if a.State == "" {
		a.State = cmp.Or(old.State, app.Stopped)
	}
	a.UpdatedAt = app.Now()
	a.CreatedAt = a.UpdatedAt
	if !fresh {
		a.CreatedAt = old.CreatedAt
	}
	if err := app.ValidateApp(a); err != nil {
		return a, err
	}
	err = r.apps.Put(a.GUID, a)
	if errors.Is(err, store.ErrTaken) {
		return a, &app.Invalid{Key: "name", Message: fmt.Sprintf("%q is taken by another app of this space: choose another name", a.Name)}
	}
	if err != nil {
		return a, fmt.Errorf("cannot keep app %s: %w", a.GUID, err)
	}
	if fresh {
		_, err := r.putProcess(app.Process{App: a.GUID, Type: app.Web, Instances: 1})
		return a, err
	}
	if starts(old, a) {
		if err := r.renewOthers(a.GUID); err != nil {
			return a, err
		}
	}
	if err := r.noteStates(old, a); err != nil {
		return a, err
	}
	return a, r.eachProcess(a.GUID, func(p app.Process) (app.Process, error) {
		switch {
		case starts(old, a):
			return r.startAnew(a, p)
		case appDiffers(old, a):
			return p.WithVersion(uuid.NewString()), nil
		}
		return p, nil
	})
}

// eachProcess gives every process of an app what fn makes of it. Listeners hear
// of all of them: the app's state is part of their wish.
func (r *Registry) eachProcess(appGUID string, fn func(p app.Process) (app.Process, error)) error {
	ps, err := r.Processes(appGUID)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if p, err = fn(p); err != nil {
			return err
		}
		if err := r.processes.Put(p.GUID, p); err != nil {
			return fmt.Errorf("cannot keep process %s: %w", p.GUID, err)
		}
	}
	return nil
}

func (r *Registry) putProcess(p app.Process) (app.Process, error) {
	sidecars, err := r.Sidecars(p.App)
	if err != nil {
		return p, err
	}
	return r.keepProcess(p, func(p app.Process) error { return app.ValidateProcessMemory(p, sidecars) })
}

// keepProcess is putProcess with the rules about sidecars left to the caller, who
// may be about to change both.
func (r *Registry) keepProcess(p app.Process, rules ...func(p app.Process) error) (app.Process, error) {
	a, err := r.App(p.App)
	if err != nil {
		return p, err
	}
	if p.GUID == "" {
		p.GUID = uuid.NewString()
		if p.Type == app.Web {
			p.GUID = p.App
		}
	}
	old, err := find(r.processes, p.GUID)
	if err != nil {
		return p, err
	}
	p = p.WithDefaults()
	p.UpdatedAt = app.Now()
	p.CreatedAt = p.UpdatedAt
	p = p.KeepIdentity(old)
	if old.GUID != "" {
		p.CreatedAt = old.CreatedAt
	}
	errs := []error{app.ValidateProcess(p), checkIdentity(old, p)}
	for _, rule := range rules {
		errs = append(errs, rule(p))
	}
	if err := errors.Join(errs...); err != nil {
		return p, err
	}
	if old.GUID == "" || processDiffers(old, p) {
		p = p.WithVersion(uuid.NewString())
	}
	err = r.processes.Put(p.GUID, p)
	if errors.Is(err, store.ErrTaken) {
		return p, &app.Invalid{Key: app.KeyOfProcess(p, "type"), Message: "the app has a process of this type already: change that one"}
	}
	if err != nil {
		return p, fmt.Errorf("cannot keep process %s: %w", p.GUID, err)
	}
	return p, r.noteScale(a, old, p)
}

// sorted reads all values of a bucket.
func sorted[T any](b *store.Bucket[T], nouns string, compare func(a, b T) int) ([]T, error) {
	all, err := b.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", nouns, err)
	}
	slices.SortStableFunc(all, compare)
	return all, nil
}

// get reads a value that must be there.
func get[T any](b *store.Bucket[T], noun, guid string) (v T, err error) {
	v, err = b.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s %s: %w", noun, guid, app.ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read %s %s: %w", noun, guid, err)
	}
	return v, nil
}

// find reads a value that may be missing: then it is the zero value.
func find[T any](b *store.Bucket[T], guid string) (v T, err error) {
	v, err = b.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	return v, err
}
