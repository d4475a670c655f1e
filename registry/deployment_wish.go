package registry

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// keptDeployments is how many deployments of an app are remembered.
const keptDeployments = 100

// deploymentBucket keeps deployments; an app has at most one that is not done.
func deploymentBucket(db *store.DB) *store.Bucket[app.Deployment] {
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
func (r *Registry) Deployment(guid string) (app.Deployment, error) {
	return get(r.deployments, "deployment", guid)
}

// Deployments returns the deployments of all apps.
func (r *Registry) Deployments() ([]app.Deployment, error) {
	return sorted(r.deployments, "deployments", func(a, b app.Deployment) int { return a.CreatedAt.Compare(b.CreatedAt) })
}

// ActiveDeployment returns the deployment of an app that is not done, if there is one.
func (r *Registry) ActiveDeployment(appGUID string) (d app.Deployment, active bool, err error) {
	found, err := r.deployments.By("active", appGUID)
	if err != nil {
		return d, false, fmt.Errorf("cannot read the deployment of app %s: %w", appGUID, err)
	}
	if len(found) == 0 {
		return d, false, nil
	}
	return found[0], true, nil
}

// ActiveDeployments returns those of all apps, by the guid of the app.
func (r *Registry) ActiveDeployments() (map[string]app.Deployment, error) {
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

// Wanted reads in one state what should run of a process: nothing when its app is
// stopped.
func (r *Registry) Wanted(process string) (w app.Wanted, err error) {
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

// Deploy begins a deployment. The one before it, if it is not done, is superseded:
// its instances serve until the new ones do. An app that is stopped is started.
func (r *Registry) Deploy(n app.NewDeployment) (d app.Deployment, err error) {
	err = r.update(func(r *Registry) error {
		a, err := r.App(n.App)
		if err != nil {
			return err
		}
		p, err := r.Process(a.GUID)
		if err != nil {
			return err
		}
		d = app.Deployment{
			GUID: uuid.NewString(), App: a.GUID, Strategy: n.Strategy, State: app.Deploying, Options: n.Options, Metadata: n.Metadata,
			PreviousDroplet: a.Droplet, CreatedAt: app.Now(), Original: p.Instances,
		}
		d.ChangedAt, d.HealthyAt = d.CreatedAt, d.CreatedAt
		if d.Strategy == app.Canary {
			d.State, d.Step = app.Prepaused, 1
		}
		if err := r.supersede(&d, a, p); err != nil {
			return err
		}
		if err := r.holdOthers(a); err != nil {
			return err
		}
		if a, err = r.target(&d, a, n); err != nil {
			return err
		}
		return r.begin(&d, a)
	})
	return d, err
}

// supersede ends the deployment before, and notes what runs now.
func (r *Registry) supersede(d *app.Deployment, a app.App, p app.Process) error {
	rel, err := r.started(a, p)
	if err != nil {
		return err
	}
	now := app.Share{Generation: p.Generation, Instances: p.Instances, Release: rel, Current: p.Current}
	old, active, err := r.ActiveDeployment(a.GUID)
	if err != nil {
		return err
	}
	if active {
		for _, s := range old.Others {
			if s.Instances > 0 {
				d.Others = append(d.Others, s)
			}
		}
		if p.Instances == old.Target {
			d.Original = old.Original
		}
		now.Instances = old.Instances
		now.Dropped = old.State == app.Prepaused || old.State == app.Paused
		if err := r.endSuperseded(old); err != nil {
			return err
		}
	}
	d.Others = append(d.Others, now)
	return nil
}

// endSuperseded is the end of a deployment that another one came before.
func (r *Registry) endSuperseded(d app.Deployment) error {
	to := app.Canceled
	if d.State == app.Deploying {
		to = app.Deployed
	}
	d.State, d.Superseded, d.ChangedAt, d.Others = to, true, app.Now(), nil
	return r.keepDeployment(d)
}

// renewOthers wishes for new instances also of the generations beside the process's
// own.
func (r *Registry) renewOthers(appGUID string) error {
	d, active, err := r.ActiveDeployment(appGUID)
	if err != nil || !active {
		return err
	}
	for i := range d.Others {
		version := uuid.NewString()
		d.Others[i].Release.Version, d.Others[i].Current = version, []string{version}
	}
	return r.keepDeployment(d)
}

// holdOthers makes the other processes stay as they are until the web process is
// deployed.
func (r *Registry) holdOthers(a app.App) error {
	if a.State != app.Started {
		return nil
	}
	return r.eachProcess(a.GUID, func(p app.Process) (app.Process, error) {
		if p.Type == app.Web {
			return p, nil
		}
		rel, err := r.started(a, p)
		p.Started, p.Held = &rel, true
		return p, err
	})
}

// target makes the app's wish what is to be deployed.
func (r *Registry) target(d *app.Deployment, a app.App, n app.NewDeployment) (app.App, error) {
	if n.Droplet != "" {
		a.Droplet = n.Droplet
	}
	var back app.Revision
	if n.Revision != "" {
		var err error
		if back, err = r.Revision(n.Revision); errors.Is(err, app.ErrNotFound) || err == nil && back.App != a.GUID {
			return a, &app.Refused{Reason: "The revision does not exist"}
		}
		if err != nil {
			return a, err
		}
		if err := r.rollBack(d, &a, back); err != nil {
			return a, err
		}
	}
	a, err := r.putApp(a)
	if err != nil {
		return a, err
	}
	if err := r.scaleFor(d, back); err != nil {
		return a, err
	}
	rev, err := r.revise(a, back)
	d.Droplet, d.Revision, d.RevisionVersion = a.Droplet, rev.GUID, rev.Version
	return a, err
}

// scaleFor gives the web process what the deployment's options and a revision say.
func (r *Registry) scaleFor(d *app.Deployment, back app.Revision) error {
	d.Target = d.Original
	if d.Options.WebInstances != nil {
		d.Target = *d.Options.WebInstances
	}
	_, err := r.UpdateProcess(d.App, func(p *app.Process) error {
		p.Instances = d.Target
		if d.Options.MemoryMB != nil {
			p.MemoryMB = *d.Options.MemoryMB
		}
		if d.Options.DiskMB != nil {
			p.DiskMB = *d.Options.DiskMB
		}
		if rate := d.Options.LogRate; rate != nil {
			p.LogRate = rate
			if *rate < 0 {
				p.LogRate = nil
			}
		}
		if back.GUID != "" {
			p.Command = back.Commands[app.Web]
		}
		return nil
	})
	return err
}

// begin wishes for the first new instances.
func (r *Registry) begin(d *app.Deployment, a app.App) error {
	p, err := r.Process(d.App)
	if err != nil {
		return err
	}
	p.Newest = max(p.Newest, p.Generation) + 1
	p.Generation, d.Generation = p.Newest, p.Newest
	if p, err = r.startAnew(a, p); err != nil {
		return err
	}
	if err := r.processes.Put(p.GUID, p); err != nil {
		return fmt.Errorf("cannot keep process %s: %w", p.GUID, err)
	}
	d.Instances = min(d.Options.MaxInFlight, d.Plan(p.Instances).New)
	if a.State == app.Started {
		return r.keepDeployment(*d)
	}
	// Nothing has to be replaced.
	if err := r.finish(d); err != nil {
		return err
	}
	a.State = app.Started
	_, err = r.putApp(a)
	return err
}

// finish ends a deployment: only the new instances stay, and the other processes
// follow.
func (r *Registry) finish(d *app.Deployment) error {
	d.Move(app.Deployed)
	d.Others = nil
	if err := r.keepDeployment(*d); err != nil {
		return err
	}
	a, err := r.App(d.App)
	if err != nil {
		return err
	}
	rev, err := find(r.revisions, d.Revision)
	if err != nil {
		return fmt.Errorf("cannot read revision %s: %w", d.Revision, err)
	}
	return r.eachProcess(d.App, func(p app.Process) (app.Process, error) {
		if p.Type == app.Web {
			return p, nil
		}
		if command, known := rev.Commands[p.Type]; known && d.Before != nil {
			p.Command = command
		}
		return r.startAnew(a, p)
	})
}

// keepDeployment writes d, forgets what is beyond the bound, and tells who listens
// to the process.
func (r *Registry) keepDeployment(d app.Deployment) error {
	d.UpdatedAt = app.Now()
	if err := r.deployments.Put(d.GUID, d); err != nil {
		return fmt.Errorf("cannot keep deployment %s: %w", d.GUID, err)
	}
	if err := r.processes.Touch(d.App); err != nil {
		return fmt.Errorf("cannot tell of deployment %s: %w", d.GUID, err)
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
			return fmt.Errorf("cannot forget deployment %s: %w", old.GUID, err)
		}
	}
	return nil
}

// forgetDeployments removes those of an app that is deleted.
func (r *Registry) forgetDeployments(appGUID string) error {
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

// DropletsInUse are the guids of the droplets that instances are, or may be, started
// from.
func (r *Registry) DropletsInUse() (map[string]bool, error) {
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
