package registry

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/dewrun/dew/app"
)

// MoveDeployment lets fn take a deployment a step further, unless it is done. What
// fn leaves as it was is not written.
func (r *Registry) MoveDeployment(guid string, fn func(p app.Process, d *app.Deployment)) error {
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

// ContinueDeployment lets a canary that is paused go on.
func (r *Registry) ContinueDeployment(guid string) (d app.Deployment, err error) {
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

// CancelDeployment goes back to the generation before. Ready tells how many of a
// generation's instances serve: of several, the newest that does is gone back to.
func (r *Registry) CancelDeployment(guid string, ready func(d app.Deployment, generation int) int) (d app.Deployment, err error) {
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
		i := backTo(d.Others, func(generation int) int { return ready(d, generation) })
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

// backTo is the share that a cancel goes back to: the newest that serves, else the
// oldest.
func backTo(others []app.Share, ready func(generation int) int) int {
	for i, s := range slices.Backward(others) {
		if !s.Dropped && ready(s.Generation) > 0 {
			return i
		}
	}
	return max(slices.IndexFunc(others, func(s app.Share) bool { return !s.Dropped }), 0)
}

// goBack makes the wish that of an earlier generation again. What somebody wished
// beside the deployment stays wished, and waits for the next start: until then
// instances are started from what they had.
func (r *Registry) goBack(d *app.Deployment, to app.Share) error {
	a, err := r.App(d.App)
	if err != nil {
		return err
	}
	a.Droplet = to.Release.Droplet
	if d.Before != nil {
		a.Env = maps.Clone(d.Before.Env)
	}
	if _, err := r.putApp(a); err != nil {
		return err
	}
	if d.Before != nil {
		if err := r.replaceSidecars(d.App, d.Before.Sidecars); err != nil {
			return err
		}
	}
	p, err := r.Process(d.App)
	if err != nil {
		return err
	}
	sidecars, err := r.Sidecars(d.App)
	if err != nil {
		return err
	}
	memory := p.MemoryMB
	d.Unscale(&p, to.Release)
	if app.ValidateProcessMemory(p, sidecars) != nil {
		p.MemoryMB = memory // the wished sidecars need it
	}
	if p, err = r.keepProcess(p); err != nil {
		return err
	}
	p.Generation, p.Started, p.Held, p.Version, p.Current = to.Generation, &to.Release, true, to.Release.Version, to.Current
	d.Instances = max(p.Instances, to.Instances)
	if err := r.processes.Put(p.GUID, p); err != nil {
		return fmt.Errorf("cannot keep process %s: %w", p.GUID, err)
	}
	return nil
}

// UpdateDeployment changes labels and annotations.
func (r *Registry) UpdateDeployment(guid string, change app.MetadataChange) (d app.Deployment, err error) {
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
