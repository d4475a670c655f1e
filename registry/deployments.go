package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// DeploymentStore stores deployments and the releases of processes.
type DeploymentStore struct{ *tables }

// keptDeployments is how many deployments of an app are kept.
const keptDeployments = 100

// deploymentBucket returns the bucket of deployments. An app has at most one active one.
func deploymentBucket(db *store.DB) store.Bucket[app.Deployment] {
	return store.In(db, "deployments",
		store.Index("app", func(d app.Deployment) string { return d.App }),
		store.Unique("active", func(d app.Deployment) string {
			if !d.Active() {
				return ""
			}
			return d.App
		}))
}

// Deployment returns the deployment with guid.
func (r *DeploymentStore) Deployment(guid string) (app.Deployment, error) {
	return get(r.deployments, "deployment", guid)
}

// Deployments returns the deployments of all apps.
func (r *DeploymentStore) Deployments() ([]app.Deployment, error) {
	return sorted(r.deployments, "deployments", func(a, b app.Deployment) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// ActiveDeployment returns the active deployment of an app, if there is one.
func (r *DeploymentStore) ActiveDeployment(appGUID string) (d app.Deployment, active bool, err error) {
	found, err := r.deployments.By("active", appGUID)
	if err != nil {
		return d, false, fmt.Errorf("cannot read the deployment of app %s: %w", appGUID, err)
	}
	if len(found) == 0 {
		return d, false, nil
	}
	return found[0], true, nil
}

// ActiveDeployments returns the active deployments of all apps, by the guid of the app.
func (r *DeploymentStore) ActiveDeployments() (map[string]app.Deployment, error) {
	all, err := r.deployments.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list deployments: %w", err)
	}
	out := map[string]app.Deployment{}
	for _, d := range all {
		if d.Active() {
			out[d.App] = d
		}
	}
	return out, nil
}

// Wanted returns the desired instances of a process, read in one transaction. There are
// none if its app is stopped.
func (r *DeploymentStore) Wanted(process string) (w app.Wanted, err error) {
	err = r.view(func(r *Registry) error {
		if w.Process, err = r.Process(process); err != nil {
			return err
		}
		a, err := r.App(w.Process.App)
		if err != nil {
			return err
		}
		w.Counts = map[int]int{}
		if a.State != app.Started {
			return nil
		}
		w.Counts[w.Process.Generation] = w.Process.Instances
		if w.Process.Type != app.Web {
			return nil
		}
		d, active, err := r.ActiveDeployment(a.GUID)
		if active {
			w.Deployment, w.Counts = &d, d.Counts(w.Process)
		}
		return err
	})
	return w, err
}

// keepDeployment writes d, deletes the oldest deployments beyond the limit, and
// notifies listeners of the process.
func (r *DeploymentStore) keepDeployment(d app.Deployment) error {
	d.UpdatedAt = app.Now()
	if err := r.deployments.Put(d.GUID, d); err != nil {
		return fmt.Errorf("cannot store deployment %s: %w", d.GUID, err)
	}
	if err := r.processes.Touch(d.App); err != nil {
		return fmt.Errorf("cannot notify the process of deployment %s: %w", d.GUID, err)
	}
	all, err := r.deployments.By("app", d.App)
	if err != nil || len(all) <= keptDeployments {
		return err
	}
	slices.SortFunc(all, func(a, b app.Deployment) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for _, old := range all[:len(all)-keptDeployments] {
		if old.Active() {
			continue
		}
		if err := r.deployments.Delete(old.GUID); err != nil {
			return fmt.Errorf("cannot delete deployment %s: %w", old.GUID, err)
		}
	}
	return nil
}

// forgetDeployments deletes the deployments and revisions of an app.
func (r *DeploymentStore) forgetDeployments(appGUID string) error {
	all, err := r.deployments.By("app", appGUID)
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := r.deployments.Delete(d.GUID); err != nil {
			return err
		}
	}
	revisions, err := r.revisions.By("app", appGUID)
	if err != nil {
		return err
	}
	for _, v := range revisions {
		if err := r.revisions.Delete(v.GUID); err != nil {
			return err
		}
	}
	return nil
}

// DropletsInUse returns the guids of the droplets that instances and tasks start from,
// now or at their next start.
func (r *DeploymentStore) DropletsInUse() (map[string]bool, error) {
	used := map[string]bool{}
	err := r.view(func(r *Registry) error {
		apps, err := r.Apps()
		if err != nil {
			return err
		}
		for _, a := range apps {
			used[a.Droplet] = true
		}
		processes, err := r.AllProcesses()
		if err != nil {
			return err
		}
		for _, p := range processes {
			if p.Started != nil {
				used[p.Started.Droplet] = true
			}
		}
		active, err := r.ActiveDeployments()
		for _, d := range active {
			for _, s := range d.Others {
				used[s.Release.Droplet] = true
			}
		}
		tasks, terr := r.ActiveTasks()
		for _, t := range tasks {
			used[t.Droplet] = true
		}
		return errors.Join(err, terr)
	})
	return used, err
}

// release returns the present desired state of a process.
func (r *DeploymentStore) release(a app.App, p app.Process) (app.Release, error) {
	sidecars, err := r.registry().SidecarsOf(a.GUID, p.Type)
	if err != nil {
		return app.Release{}, err
	}
	rel := app.Release{
		Droplet: a.Droplet, Stack: a.Stack, Env: maps.Clone(a.Env), Command: p.Command, MemoryMB: p.MemoryMB, DiskMB: p.DiskMB,
		LogRate: p.LogRate, HealthCheck: p.HealthCheck, Readiness: p.Readiness, Ports: slices.Clone(p.Ports),
		Sidecars: sidecars, Version: p.Version,
	}
	if a.NoRevisions {
		return rel, nil
	}
	latest, err := r.registry().LatestRevision(a.GUID)
	rel.Revision = latest.GUID
	return rel, err
}

// started returns the release that the instances of p run now. It is the one of their
// last start, or the present desired state if that is not known.
func (r *DeploymentStore) started(a app.App, p app.Process) (app.Release, error) {
	if p.Started != nil {
		return *p.Started, nil
	}
	return r.release(a, p)
}

// restarted returns p with new instances in place of all that run.
func (r *DeploymentStore) restarted(a app.App, p app.Process) (app.Process, error) {
	p = p.Restarted(uuid.NewString())
	rel, err := r.release(a, p)
	p.Started, p.Held = &rel, false
	return p, err
}

// DesiredAt returns the desired state of an instance of a generation, in one transaction:
// the app, the process and its sidecars. The error is ErrNotFound if the generation
// is not desired.
func (r *DeploymentStore) DesiredAt(process string, generation int) (a app.App, p app.Process, sidecars []app.Sidecar, err error) {
	err = r.view(func(r *Registry) error {
		if p, err = r.Process(process); err != nil {
			return err
		}
		if a, err = r.App(p.App); err != nil {
			return err
		}
		if generation == p.Generation {
			if p.Held && p.Started != nil {
				a, p = p.Started.Apply(a, p)
				sidecars = p.Started.Sidecars
				return nil
			}
			sidecars, err = r.SidecarsOf(a.GUID, p.Type)
			return err
		}
		share, err := r.shareOf(p, generation)
		if err != nil {
			return err
		}
		a, p = share.Release.Apply(a, p)
		p.Current, sidecars = slices.Clone(share.Current), share.Release.Sidecars
		return nil
	})
	return a, p, sidecars, err
}

// shareOf finds a generation other than the process's own.
func (r *DeploymentStore) shareOf(p app.Process, generation int) (app.Share, error) {
	d, active, err := r.ActiveDeployment(p.App)
	if err != nil {
		return app.Share{}, err
	}
	if active && p.Type == app.Web {
		for _, s := range d.Others {
			if s.Generation == generation {
				return s, nil
			}
		}
	}
	return app.Share{}, fmt.Errorf("generation %d of process %s: %w", generation, p.GUID, app.ErrNotFound)
}

// UpdateDeployment changes labels and annotations.
func (r *DeploymentStore) UpdateDeployment(guid string, change app.MetadataChange) (d app.Deployment, err error) {
	err = r.update(func(r *Registry) error {
		if d, err = r.Deployment(guid); err != nil {
			return err
		}
		d.Metadata = d.Metadata.Merge(change)
		if err := d.Metadata.Validate(); err != nil {
			return err
		}
		return r.keepDeployment(d)
	})
	return d, err
}
