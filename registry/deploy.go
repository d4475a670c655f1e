package registry

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// Deploy starts a deployment. It supersedes an active deployment of the app, whose
// instances serve until the new ones are ready. It starts a stopped app.
func (r *DeploymentStore) Deploy(n app.NewDeployment) (d app.Deployment, err error) {
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

// supersede stops the active deployment, and records the running generations in d.
func (r *DeploymentStore) supersede(d *app.Deployment, a app.App, p app.Process) error {
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

// endSuperseded finishes a deployment that a newer one replaces.
func (r *DeploymentStore) endSuperseded(d app.Deployment) error {
	to := app.Canceled
	if d.State == app.Deploying {
		to = app.Deployed
	}
	d.State, d.Superseded, d.ChangedAt, d.Others = to, true, app.Now(), nil
	return r.keepDeployment(d)
}

// renewOthers requests new instances of all generations except the process's own.
func (r *DeploymentStore) renewOthers(appGUID string) error {
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

// holdOthers keeps the release of the other processes until the web process is
// deployed.
func (r *DeploymentStore) holdOthers(a app.App) error {
	if a.State != app.Started {
		return nil
	}
	return r.registry().eachProcess(a.GUID, func(p app.Process) (app.Process, error) {
		if p.Type == app.Web {
			return p, nil
		}
		rel, err := r.started(a, p)
		p.Started, p.Held = &rel, true
		return p, err
	})
}

// target sets the desired state of the app to the one that is deployed.
func (r *DeploymentStore) target(d *app.Deployment, a app.App, n app.NewDeployment) (app.App, error) {
	all := r.registry()
	if n.Droplet != "" {
		a.Droplet = n.Droplet
	}
	var back app.Revision
	if n.Revision != "" {
		var err error
		if back, err = all.Revision(n.Revision); errors.Is(err, app.ErrNotFound) || err == nil && back.App != a.GUID {
			return a, &app.Refused{Reason: "The revision does not exist"}
		}
		if err != nil {
			return a, err
		}
		if err := all.rollBack(d, &a, back); err != nil {
			return a, err
		}
	}
	a, err := all.putApp(a)
	if err != nil {
		return a, err
	}
	if err := r.scaleFor(d, back); err != nil {
		return a, err
	}
	rev, err := all.revise(a, back)
	d.Droplet, d.Revision, d.RevisionVersion = a.Droplet, rev.GUID, rev.Version
	return a, err
}

// scaleFor applies the deployment's options and the command of a revision to the web
// process.
func (r *DeploymentStore) scaleFor(d *app.Deployment, back app.Revision) error {
	d.Target = d.Original
	if d.Options.WebInstances != nil {
		d.Target = *d.Options.WebInstances
	}
	_, err := r.registry().UpdateProcess(d.App, func(p *app.Process) error {
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

// begin requests the first new instances.
func (r *DeploymentStore) begin(d *app.Deployment, a app.App) error {
	p, err := r.registry().Process(d.App)
	if err != nil {
		return err
	}
	p.Newest = max(p.Newest, p.Generation) + 1
	p.Generation, d.Generation = p.Newest, p.Newest
	if p, err = r.restarted(a, p); err != nil {
		return err
	}
	if err := r.processes.Put(p.GUID, p); err != nil {
		return fmt.Errorf("cannot store process %s: %w", p.GUID, err)
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
	_, err = r.registry().putApp(a)
	return err
}

// finish completes a deployment: only the new instances stay, and the other processes
// restart.
func (r *DeploymentStore) finish(d *app.Deployment) error {
	d.Move(app.Deployed)
	d.Others = nil
	if err := r.keepDeployment(*d); err != nil {
		return err
	}
	a, err := r.registry().App(d.App)
	if err != nil {
		return err
	}
	rev, err := find(r.revisions, d.Revision)
	if err != nil {
		return fmt.Errorf("cannot read revision %s: %w", d.Revision, err)
	}
	return r.registry().eachProcess(d.App, func(p app.Process) (app.Process, error) {
		if p.Type == app.Web {
			return p, nil
		}
		if command, known := rev.Commands[p.Type]; known && d.Before != nil {
			p.Command = command
		}
		return r.restarted(a, p)
	})
}

// MoveDeployment lets fn change a deployment that is still active. It writes nothing if
// fn changes nothing.
func (r *DeploymentStore) MoveDeployment(guid string, fn func(p app.Process, d *app.Deployment)) error {
	return r.update(func(r *Registry) error {
		d, err := r.Deployment(guid)
		if err != nil {
			return err
		}
		p, err := r.Process(d.App)
		if err != nil {
			return err
		}
		was := d
		was.Others = slices.Clone(d.Others)
		if !d.Active() {
			return nil
		}
		fn(p, &d)
		state := d.State
		d.State = was.State
		d.Move(state)
		switch {
		case reflect.DeepEqual(was, d):
			return nil
		case d.State == app.Deployed:
			return r.finish(&d)
		case d.State == app.Canceled:
			d.Others = nil
		}
		return r.keepDeployment(d)
	})
}

// ContinueDeployment continues a paused canary deployment.
func (r *DeploymentStore) ContinueDeployment(guid string) (d app.Deployment, err error) {
	err = r.update(func(r *Registry) error {
		if d, err = r.Deployment(guid); err != nil {
			return err
		}
		if d.State != app.Paused {
			return d.Refusal("continue")
		}
		if d.Step < d.Steps() {
			d.Step++
			d.Move(app.Prepaused)
		} else {
			d.Move(app.Deploying)
		}
		return r.keepDeployment(d)
	})
	return d, err
}

// CancelDeployment restores the previous generation. If there are several, it restores
// the newest that has ready instances; ready returns their number.
func (r *DeploymentStore) CancelDeployment(guid string, ready func(d app.Deployment, generation int) int) (d app.Deployment, err error) {
	err = r.update(func(r *Registry) error {
		if d, err = r.Deployment(guid); err != nil {
			return err
		}
		if !d.Active() {
			return d.Refusal("cancel")
		}
		if d.State == app.Canceling {
			return nil
		}
		p, err := r.Process(d.App)
		if err != nil {
			return err
		}
		i := restoredShare(d.Others, func(generation int) int { return ready(d, generation) })
		to := d.Others[i]
		rest := append(slices.Delete(slices.Clone(d.Others), i, i+1), app.Share{
			Generation: p.Generation, Instances: d.Instances, Release: *p.Started, Current: p.Current, Dropped: true,
		})
		d.Move(app.Canceling)
		d.Others = rest
		if err := r.goBack(&d, to); err != nil {
			return err
		}
		return r.keepDeployment(d)
	})
	return d, err
}

// restoredShare returns the index of the share that a cancel restores: the newest with ready
// instances, otherwise the oldest.
func restoredShare(others []app.Share, ready func(generation int) int) int {
	for i, s := range slices.Backward(others) {
		if !s.Dropped && ready(s.Generation) > 0 {
			return i
		}
	}
	return max(slices.IndexFunc(others, func(s app.Share) bool { return !s.Dropped }), 0)
}

// goBack restores the desired state of an earlier generation. Changes that were made
// during the deployment stay, and take effect at the next start. Until then, instances
// start from the release they had.
func (r *DeploymentStore) goBack(d *app.Deployment, to app.Share) error {
	all := r.registry()
	a, err := all.App(d.App)
	if err != nil {
		return err
	}
	a.Droplet = to.Release.Droplet
	if d.Before != nil {
		a.Env = maps.Clone(d.Before.Env)
	}
	if _, err := all.putApp(a); err != nil {
		return err
	}
	if d.Before != nil {
		if err := all.replaceSidecars(d.App, d.Before.Sidecars); err != nil {
			return err
		}
	}
	p, err := all.Process(d.App)
	if err != nil {
		return err
	}
	sidecars, err := all.Sidecars(d.App)
	if err != nil {
		return err
	}
	memory := p.MemoryMB
	d.Unscale(&p, to.Release)
	if app.ValidateProcessMemory(p, sidecars) != nil {
		p.MemoryMB = memory // the desired sidecars need it
	}
	if p, err = all.keepProcess(p); err != nil {
		return err
	}
	p.Generation, p.Started, p.Held, p.Version, p.Current = to.Generation, &to.Release, true, to.Release.Version, to.Current
	d.Instances = max(p.Instances, to.Instances)
	if err := r.processes.Put(p.GUID, p); err != nil {
		return fmt.Errorf("cannot store process %s: %w", p.GUID, err)
	}
	return nil
}
