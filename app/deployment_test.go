package app

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Where a deployment goes: all the way, or to the next pause with one instance more.
func TestDeploymentPlan(t *testing.T) {
	t.Parallel()
	canary := func(step, original, target int, weights ...int) Deployment {
		return Deployment{Strategy: Canary, State: Prepaused, Step: step, Original: original, Target: target, Options: DeploymentOptions{Steps: weights}}
	}
	for name, tt := range map[string]struct {
		d         Deployment
		instances int
		want      Plan
	}{
		"rolling":             {Deployment{State: Deploying}, 3, Plan{3, 3}},
		"none":                {Deployment{State: Deploying}, 0, Plan{0, 0}},
		"canary":              {canary(1, 4, 4), 4, Plan{1, 5}},
		"first step":          {canary(1, 10, 10, 20, 50), 10, Plan{2, 11}},
		"second step":         {canary(2, 10, 10, 20, 50), 10, Plan{5, 11}},
		"rounded":             {canary(1, 3, 3, 50), 3, Plan{2, 4}},
		"at least one":        {canary(1, 2, 2, 1), 2, Plan{1, 3}},
		"all of them":         {canary(1, 4, 4, 100), 4, Plan{4, 4}},
		"fewer than before":   {canary(1, 10, 4, 50), 4, Plan{2, 5}},
		"more than before":    {canary(1, 4, 10, 50), 10, Plan{2, 5}},
		"scaled meanwhile":    {canary(1, 4, 4, 50), 8, Plan{4, 9}},
		"paused":              {Deployment{State: Paused, Step: 1, Original: 4, Target: 4, Options: DeploymentOptions{Steps: []int{50}}}, 4, Plan{2, 5}},
		"after the last step": {Deployment{State: Deploying, Step: 1, Options: DeploymentOptions{Steps: []int{50}}}, 4, Plan{4, 4}},
	} {
		if got := tt.d.Plan(tt.instances); got != tt.want {
			t.Errorf("%s: plan = %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestRevisionReasons(t *testing.T) {
	t.Parallel()
	old := Revision{Droplet: "d", Env: map[string]string{"A": "1"}, Commands: map[string]string{"web": "", "worker": "w", "clock": "c"}, Sidecars: []Sidecar{{Name: "s", ProcessTypes: []string{"web", "worker"}}}}
	same := Revision{Droplet: "d", Env: map[string]string{"A": "1"}, Commands: map[string]string{"web": "", "worker": "w", "clock": "c"}, Sidecars: []Sidecar{{GUID: "g", Name: "s", ProcessTypes: []string{"worker", "web"}}}}
	if got := revisionReasons(old, same); len(got) != 0 {
		t.Errorf("reasons = %v, want none", got)
	}
	next := Revision{Droplet: "e", Commands: map[string]string{"web": "x", "worker": "", "cron": ""}}
	want := []string{
		"Custom start command added for 'web' process.", "Custom start command removed for 'worker' process.",
		"New droplet deployed.", "New environment variables deployed.", "New process type 'cron' added.",
		"Process type 'clock' removed.", "Sidecars updated.",
	}
	if diff := cmp.Diff(revisionReasons(old, next), want); diff != "" {
		t.Errorf("reasons (-got +want):\n%s", diff)
	}
}

// What is kept of deployments and revisions is bounded, and goes with the app.
func TestDeploymentsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	a := one[App](t)(r.PutApp(App{Name: "shop", Space: "s1", Droplet: "d"}))
	began := now().Add(-time.Hour)
	must(t, r.update(func(r *Registry) error {
		for i := range keptDeployments {
			name, at := fmt.Sprint(i), began.Add(time.Duration(i))
			d := Deployment{GUID: "d" + name, App: a.GUID, State: Deployed, CreatedAt: at}
			v := Revision{GUID: "v" + name, App: a.GUID, Version: i + 1, CreatedAt: at}
			if err := errors.Join(r.deployments.Put(d.GUID, d), r.revisions.Put(v.GUID, v)); err != nil {
				return err
			}
		}
		return nil
	}))
	for i := range 5 {
		one[App](t)(r.UpdateApp(a.GUID, func(a *App) error { a.Env = map[string]string{"N": fmt.Sprint(i)}; return nil }))
		one[Deployment](t)(r.Deploy(NewDeployment{App: a.GUID, Strategy: Rolling, Options: DeploymentOptions{MaxInFlight: 1}}))
	}
	ds, vs := one[[]Deployment](t)(r.Deployments()), one[[]Revision](t)(r.Revisions(a.GUID))
	if len(ds) != keptDeployments || len(vs) != keptRevisions {
		t.Errorf("%d deployments and %d revisions are kept, want %d and %d", len(ds), len(vs), keptDeployments, keptRevisions)
	}
	if last := vs[len(vs)-1]; last.Version != keptDeployments+5 || last.GUID != ds[len(ds)-1].Revision {
		t.Errorf("the newest is %+v, want number %d", last, keptDeployments+5)
	}
	must(t, r.DeleteApp(a.GUID))
	if ds, vs = one[[]Deployment](t)(r.Deployments()), one[[]Revision](t)(r.Revisions(a.GUID)); len(ds) != 0 || len(vs) != 0 {
		t.Errorf("%d deployments and %d revisions outlive the app", len(ds), len(vs))
	}
}

// The droplets of all generations and tasks are in use, and after a cancel the old one is the
// app's again.
func TestDropletsInUse(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	a := one[App](t)(r.PutApp(App{Name: "shop", Space: "s1", Droplet: "old"}))
	one[App](t)(r.UpdateApp(a.GUID, func(a *App) error { a.State = Started; return nil }))
	d := one[Deployment](t)(r.Deploy(NewDeployment{App: a.GUID, Droplet: "new", Strategy: Rolling, Options: DeploymentOptions{MaxInFlight: 1}}))
	one[Task](t)(r.CreateTask(Task{App: a.GUID, Command: "x", Droplet: "oldest"}))
	if diff := cmp.Diff(one[map[string]bool](t)(r.DropletsInUse()), map[string]bool{"oldest": true, "old": true, "new": true}); diff != "" {
		t.Errorf("droplets (-got +want):\n%s", diff)
	}
	one[Deployment](t)(r.CancelDeployment(d.GUID, func(Deployment, int) int { return 1 }))
	if a = one[App](t)(r.App(a.GUID)); a.Droplet != "old" {
		t.Errorf("droplet = %s, want the old one", a.Droplet)
	}
	if p := one[Process](t)(r.Process(a.GUID)); p.Generation != 0 || p.Newest != 1 || !p.Held {
		t.Errorf("process = %+v, want its first generation, held", p)
	}
}

func FuzzSplitGeneration(f *testing.F) {
	for _, s := range []string{"", "p", "p.1", "p.01", "p.-1", "p.1.2", "p.", ".5", "p.99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, guid string) {
		process, generation, ok := SplitGeneration(guid)
		if ok && GenerationGUID(process, generation) != guid || !ok && process != guid {
			t.Errorf("%q is split into %q, %d, %t", guid, process, generation, ok)
		}
	})
}
