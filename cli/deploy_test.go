package cli

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// rollouts holds the deployments and revisions of the fake daemon. Each request for a
// deployment shows the next one of its reasons.
type rollouts struct {
	reasons   []string // reasons of the next deployment
	current   *v3.Deployment
	stats     []v3.InstanceStats // stats of the new instances
	revisions []v3.Revision
}

func (d *fakeDaemon) deployRoutes(handle func(string, func(*http.Request, []byte) any)) {
	o := &d.rollouts
	o.reasons = []string{v3.DeploymentDeploying, v3.DeploymentDeployed}
	o.stats = []v3.InstanceStats{{Type: "web", State: v3.StateStarting}}
	o.revisions = []v3.Revision{
		{GUID: "revision-2", Version: 2, Description: "New droplet deployed.", Deployable: true},
		{GUID: "revision-1", Version: 1, Description: "Initial revision.", Deployable: true},
	}
	handle("GET /v3/deployments", func(*http.Request, []byte) any {
		if o.current == nil || o.current.Status.Value != v3.DeploymentActive {
			return listOf[v3.Deployment]()
		}
		return listOf(*o.current)
	})
	handle("POST /v3/deployments", func(_ *http.Request, body []byte) any {
		var b v3.CreateDeployment
		d.decode(body, &b)
		o.current = &v3.Deployment{GUID: "deployment-1", Strategy: *b.Strategy, NewProcesses: []v3.NewProcess{{GUID: "app-1.1", Type: "web"}}}
		o.look()
		return answer{201, *o.current}
	})
	handle("GET /v3/deployments/deployment-1", func(*http.Request, []byte) any { o.look(); return *o.current })
	handle("GET /v3/processes/app-1.1/stats", func(*http.Request, []byte) any { return v3.Stats{Resources: o.stats} })
	for _, action := range []string{"cancel", "continue"} {
		handle("POST /v3/deployments/deployment-1/actions/"+action, func(*http.Request, []byte) any { return answer{200, nil} })
	}
	handle("GET /v3/apps/app-1/revisions", func(r *http.Request, _ []byte) any {
		all := slices.Clone(o.revisions)
		if v := r.URL.Query().Get("versions"); v != "" {
			all = slices.DeleteFunc(all, func(rev v3.Revision) bool { return v != string(rune('0'+rev.Version)) })
		}
		return listOf(all...)
	})
	handle("GET /v3/apps/app-1/revisions/deployed", func(*http.Request, []byte) any { return listOf(o.revisions[0]) })
	handle("GET /v3/revisions/{guid}/environment_variables", func(*http.Request, []byte) any { return v3.EnvVars{Var: map[string]string{"A": "1"}} })
}

// look moves to the next reason.
func (o *rollouts) look() {
	st := &o.current.Status
	st.Value, st.Reason = v3.DeploymentActive, o.reasons[0]
	if slices.Contains([]string{v3.DeploymentDeployed, v3.DeploymentCanceled, v3.DeploymentSuperseded}, st.Reason) {
		st.Value = v3.DeploymentFinalized
	}
	if o.current.Strategy == v3.StrategyCanary {
		st.Canary = &v3.CanaryStatus{Steps: v3.CanarySteps{Current: 1, Total: 2}}
	}
	if len(o.reasons) > 1 {
		o.reasons = o.reasons[1:]
	}
}

// With a strategy, a push, a restart and a restage are deployments. The size of
// instances is part of the deployment, not of the manifest.
func TestStrategy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{
			"push shop -p DIR --strategy rolling --max-in-flight 2 -i 3 -m 64M",
			`{"droplet":{"guid":"droplet-1"},"strategy":"rolling","options":{"max_in_flight":2,"web_instances":3,"memory_in_mb":64},"relationships":{"app":{"data":{"guid":"app-1"}}}}`,
		},
		{"restart shop --strategy rolling", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"app-1"}}}}`},
		{
			"restage shop --strategy canary --instance-steps 20,50",
			`{"droplet":{"guid":"droplet-1"},"strategy":"canary","options":{"canary":{"steps":[{"instance_weight":20},{"instance_weight":50}]}},"relationships":{"app":{"data":{"guid":"app-1"}}}}`,
		},
		{"rollback shop --version 1 -f", `{"revision":{"guid":"revision-1"},"strategy":"rolling","relationships":{"app":{"data":{"guid":"app-1"}}}}`},
	} {
		d := newDaemon(t).withApp(v3.AppStarted)
		dir := folder(t, map[string]string{"a": "x"})
		if !strings.HasPrefix(c.args, "push") {
			d.dew("push", "shop", "-p", dir).must(t, 0)
			d.outcome = v3.Build{State: v3.BuildStaged, Droplet: &v3.GUID{GUID: "droplet-1"}}
		}
		began := len(d.requests)
		d.dew(strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...).must(t, 0, "name:")
		if diff := cmp.Diff(strings.TrimSpace(d.body("POST /v3/deployments")), c.want); diff != "" {
			t.Errorf("%s: body (-got +want):\n%s", c.args, diff)
		}
		for _, not := range []string{"POST /v3/apps/app-1/actions/restart", "PATCH /v3/apps/app-1/relationships/current_droplet"} {
			if slices.Contains(d.requests[began:], not) {
				t.Errorf("%s: %s is asked for", c.args, not)
			}
		}
		if m := d.body("POST /v3/spaces/space-1/actions/apply_manifest"); strings.Contains(m, "64M") || strings.Contains(m, "instances: 3") {
			t.Errorf("%s: the manifest has what the deployment brings:\n%s", c.args, m)
		}
	}
}

// The result of a deployment decides the exit status of the command.
func TestDeploymentEnds(t *testing.T) {
	t.Parallel()
	crashed := []v3.InstanceStats{{Type: "web", State: v3.StateCrashed, InstanceGUID: "dead"}}
	running := []v3.InstanceStats{{Type: "web", State: v3.StateRunning}}
	for name, c := range map[string]struct {
		args    string
		reasons []string
		stats   []v3.InstanceStats
		status  int
		says    string
		cancels bool
	}{
		"paused":     {"--strategy canary", []string{v3.DeploymentDeploying, v3.DeploymentPaused}, running, 0, "canary, paused, step 1 of 2 (to go on: dew continue-deployment shop", false},
		"superseded": {"--strategy rolling", []string{v3.DeploymentSuperseded}, running, console.StatusFailed, "another deployment replaced", false},
		"cancelled":  {"--strategy rolling", []string{v3.DeploymentDeploying, v3.DeploymentCanceled}, running, console.StatusFailed, "was cancelled", false},
		"crashed":    {"--strategy rolling", []string{v3.DeploymentDeploying}, crashed, console.StatusCrashed, "keep running", true},
		"no wait":    {"--strategy rolling --no-wait", []string{v3.DeploymentDeploying}, running, 0, "rolling, deploying", false},
	} {
		d := newDaemon(t).withApp(v3.AppStarted)
		d.rollouts.reasons, d.rollouts.stats = c.reasons, c.stats
		d.crashes = []v3.Crash{{Instance: "dead", Description: "APP/PROC/WEB: Exited with status 1"}}
		d.dew(append([]string{"restart", "shop"}, strings.Fields(c.args)...)...).must(t, c.status, c.says)
		if got := d.count("POST /v3/deployments/deployment-1/actions/cancel") == 1; got != c.cancels {
			t.Errorf("%s: cancelled %t, want %t", name, got, c.cancels)
		}
	}
}

func TestDeploymentCommands(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("cancel-deployment", "shop").must(t, console.StatusFailed, "has no active deployment")
	d.dew("continue-deployment", "shop").must(t, console.StatusFailed, "has no active deployment")
	d.rollouts.reasons = []string{v3.DeploymentPaused}
	d.dew("restart", "shop", "--strategy", "canary").must(t, 0)
	d.dew("continue-deployment", "shop", "--no-wait").must(t, 0, "Continuing the deployment of app shop")
	d.dew("cancel-deployment", "shop").must(t, 0, "Cancelling the deployment of app shop")
	d.dew("revisions", "shop").must(t, 0, "New droplet deployed.", "Initial revision.")
	d.dew("revision", "shop").must(t, 0, "2 deployed", "A=1")
	d.dew("revision", "shop", "--version", "1").must(t, 0, "Initial revision.")
	d.dew("revision", "shop", "--version", "7").must(t, console.StatusFailed, "has no revision 7")
	for _, args := range []string{
		"restart shop --strategy slowly", "restart shop --max-in-flight 2", "restart shop --strategy rolling --max-in-flight 0",
		"restart shop --strategy rolling --instance-steps 20", "restart shop --strategy canary --instance-steps 20,x", "rollback shop -f", "push shop --strategy rolling --no-start",
	} {
		d.dew(strings.Fields(args)...).must(t, console.StatusUsage, "--help")
	}
}
