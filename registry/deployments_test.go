package registry

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

// The number of stored deployments and revisions is limited, and they are deleted with
// the app.
func TestDeploymentsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1", Droplet: "d"}))
	began := app.Now().Add(-time.Hour)
	must(t, r.update(func(r *Registry) error {
		for i := range keptDeployments {
			name, at := fmt.Sprint(i), began.Add(time.Duration(i))
			d := app.Deployment{GUID: "d" + name, App: a.GUID, State: app.Deployed, CreatedAt: at}
			v := app.Revision{GUID: "v" + name, App: a.GUID, Version: i + 1, CreatedAt: at}
			if err := errors.Join(r.deployments.Put(d.GUID, d), r.revisions.Put(v.GUID, v)); err != nil {
				return err
			}
		}
		return nil
	}))
	for i := range 5 {
		one[app.App](t)(r.UpdateApp(a.GUID, func(a *app.App) error { a.Env = map[string]string{"N": fmt.Sprint(i)}; return nil }))
		one[app.Deployment](t)(r.Deploy(app.NewDeployment{App: a.GUID, Strategy: app.Rolling, Options: app.DeploymentOptions{MaxInFlight: 1}}))
	}
	ds, vs := one[[]app.Deployment](t)(r.Deployments()), one[[]app.Revision](t)(r.Revisions(a.GUID))
	if len(ds) != keptDeployments || len(vs) != keptRevisions {
		t.Errorf("%d deployments and %d revisions are kept, want %d and %d", len(ds), len(vs), keptDeployments, keptRevisions)
	}
	if last := vs[len(vs)-1]; last.Version != keptDeployments+5 || last.GUID != ds[len(ds)-1].Revision {
		t.Errorf("the newest is %+v, want number %d", last, keptDeployments+5)
	}
	must(t, r.DeleteApp(a.GUID))
	if ds, vs = one[[]app.Deployment](t)(r.Deployments()), one[[]app.Revision](t)(r.Revisions(a.GUID)); len(ds) != 0 || len(vs) != 0 {
		t.Errorf("%d deployments and %d revisions outlive the app", len(ds), len(vs))
	}
}

// The droplets of all generations and tasks are in use. After a cancel, the app has the
// old droplet again.
func TestDropletsInUse(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	a := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1", Droplet: "old"}))
	one[app.App](t)(r.UpdateApp(a.GUID, func(a *app.App) error { a.State = app.Started; return nil }))
	d := one[app.Deployment](t)(r.Deploy(app.NewDeployment{App: a.GUID, Droplet: "new", Strategy: app.Rolling, Options: app.DeploymentOptions{MaxInFlight: 1}}))
	one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Command: "x", Droplet: "oldest"}))
	if diff := cmp.Diff(one[map[string]bool](t)(r.DropletsInUse()), map[string]bool{"oldest": true, "old": true, "new": true}); diff != "" {
		t.Errorf("droplets (-got +want):\n%s", diff)
	}
	one[app.Deployment](t)(r.CancelDeployment(d.GUID, func(app.Deployment, int) int { return 1 }))
	if a = one[app.App](t)(r.App(a.GUID)); a.Droplet != "old" {
		t.Errorf("droplet = %s, want the old one", a.Droplet)
	}
	if p := one[app.Process](t)(r.Process(a.GUID)); p.Generation != 0 || p.Newest != 1 || !p.Held {
		t.Errorf("process = %+v, want its first generation, held", p)
	}
}
