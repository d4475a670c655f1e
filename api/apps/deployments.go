package apps

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// deploymentHandlers answers requests about deployments.
type deploymentHandlers struct{ *Handlers }

func (h deploymentHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/deployments", Needs: access.Authenticated,
			Handler: h.listDeployments, Shape: rest.PageOf[v3.Deployment]("guids", "app_guids", "status_values", "status_reasons", "states", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/deployments", Needs: access.Authenticated, // the body names the app
			Handler: h.createDeployment, Shape: rest.Returns[v3.Deployment](201).Reads(rest.JSON[v3.CreateDeployment]()),
		},
		{Pattern: "GET /v3/deployments/{guid}", Needs: access.Read, Resource: access.Deployment, Handler: h.getDeployment, Shape: rest.Returns[v3.Deployment](200)},
		{
			Pattern: "PATCH /v3/deployments/{guid}", Needs: access.Develop, Resource: access.Deployment,
			Handler: h.updateDeployment, Shape: rest.Returns[v3.Deployment](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "POST /v3/deployments/{guid}/actions/cancel", Needs: access.Support, Resource: access.ControllableDeployment,
			Handler: h.cancelDeployment, Shape: rest.Empty(200),
		},
		{
			Pattern: "POST /v3/deployments/{guid}/actions/continue", Needs: access.Support, Resource: access.ControllableDeployment,
			Handler: h.continueDeployment, Shape: rest.Empty(200),
		},
	}
}

func (h deploymentHandlers) deploymentOf(r *http.Request) (app.Deployment, error) {
	d, err := h.Platform.Registry.Deployment(r.PathValue("guid"))
	return d, rest.Missing("Deployment", err)
}

func (h deploymentHandlers) listDeployments(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	apps, err := h.Present.VisibleApps(r, q)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Deployments()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d app.Deployment) bool {
		_, seen := apps[d.App]
		value, reason := d.Status()
		return !seen || !q.Matches("guids", d.GUID) || !q.Matches("status_values", value) || !q.Matches("status_reasons", reason) || !q.Matches("states", string(d.State))
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Deployment, v3.Deployment]{
		Key: func(d app.Deployment) rest.Key {
			return rest.Key{Name: d.GUID, Created: d.CreatedAt, Updated: d.UpdatedAt, GUID: d.GUID}
		},
		Present: h.presentDeployment,
		Labels:  func(d app.Deployment) map[string]string { return d.Metadata.Labels },
	}), nil
}

func (h deploymentHandlers) getDeployment(r *http.Request) (any, error) {
	d, err := h.deploymentOf(r)
	if err != nil {
		return nil, err
	}
	return h.presentDeployment(d), nil
}

func (h deploymentHandlers) updateDeployment(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	d, err := h.Platform.Registry.UpdateDeployment(r.PathValue("guid"), platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, rest.Missing("Deployment", err)
	}
	return h.presentDeployment(d), nil
}

// createDeployment requests instances of a new generation.
func (h deploymentHandlers) createDeployment(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateDeployment](r)
	if err != nil {
		return nil, err
	}
	n, err := newDeployment(body)
	if err != nil {
		return nil, err
	}
	a, err := h.deployable(r.Context(), n.App)
	if err != nil {
		return nil, err
	}
	var d app.Deployment
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		image, err := w.DeployedDroplet(n)
		if err != nil {
			return err
		}
		n.Droplet = image.GUID
		before, err := w.Registry.LatestRevision(a.GUID)
		if err != nil {
			return err
		}
		if err := errors.Join(w.AddProcesses(a, image), platform.AddSidecars(w.Registry, a.GUID, image)); err != nil {
			return err
		}
		if d, err = w.Registry.Deploy(n); err != nil {
			return err
		}
		return h.recordDeployment(w, d, body, before)
	})
	if err != nil {
		return nil, refusedOf(err)
	}
	h.Platform.LogToApp(a.GUID, "Creating deployment for app with guid "+a.GUID)
	return rest.Answer{Status: http.StatusCreated, Body: h.presentDeployment(d)}, nil
}

// deployable returns the app to deploy. A caller who lacks the permission gets the same
// error as one who cannot see the app, as on Cloud Foundry.
func (h deploymentHandlers) deployable(ctx context.Context, guid string) (app.App, error) {
	a, err := h.Platform.Registry.App(guid)
	if err == nil {
		err = h.Access.Require(ctx, access.Support, a.Space)
	}
	if platform.IsNotFound(err) || errors.Is(err, access.ErrNotAuthorized) {
		return a, rest.Unprocessable("Unable to use app. Ensure that the app exists and you have access to it.")
	}
	return a, err
}

// recordDeployment stores the events of a new deployment, and refuses a deployment
// whose instances could not start.
func (h deploymentHandlers) recordDeployment(w platform.Tx, d app.Deployment, request v3.CreateDeployment, before app.Revision) error {
	a, err := w.Registry.App(d.App)
	if err != nil {
		return err
	}
	if err := h.Platform.CheckStart(w.Registry, &a); err != nil {
		return err
	}
	if d.Droplet != d.PreviousDroplet {
		if err := w.Record("audit.app.droplet.mapped", a, map[string]any{"request": map[string]any{"droplet_guid": d.Droplet}}); err != nil {
			return err
		}
	}
	if d.Revision != "" && d.Revision != before.GUID {
		if err := h.Platform.RecordRevision(w, a, d.Revision, d.RevisionVersion); err != nil {
			return err
		}
	}
	data := map[string]any{
		"deployment_guid": d.GUID, "droplet_guid": d.Droplet, "type": nil, "revision_guid": d.Revision, "request": request, "strategy": d.Strategy,
	}
	if request.Revision != nil {
		data["type"] = "rollback"
	}
	return w.Record("audit.app.deployment.create", a, data)
}

func (h deploymentHandlers) cancelDeployment(r *http.Request) (any, error) {
	return h.act(r, "audit.app.deployment.cancel", "Cancelling deployment for app with guid ", func(reg *registry.Registry, guid string) (app.Deployment, error) {
		return reg.CancelDeployment(guid, func(d app.Deployment, generation int) int {
			n := 0
			for _, st := range h.Platform.Processes.Instances(app.GenerationGUID(d.App, generation)) {
				if st.State == runtime.Running && st.Ready {
					n++
				}
			}
			return n
		})
	})
}

func (h deploymentHandlers) continueDeployment(r *http.Request) (any, error) {
	return h.act(r, "audit.app.deployment.continue", "Continuing deployment for app with guid ", (*registry.Registry).ContinueDeployment)
}

// act cancels or continues the deployment that the path names. Its response has no
// body, as on Cloud Foundry.
func (h deploymentHandlers) act(r *http.Request, event, sentence string, fn func(reg *registry.Registry, guid string) (app.Deployment, error)) (any, error) {
	var d app.Deployment
	err := h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if d, err = fn(w.Registry, r.PathValue("guid")); err != nil {
			return err
		}
		a, err := w.Registry.App(d.App)
		if err != nil {
			return err
		}
		return w.Record(event, a, map[string]any{"deployment_guid": d.GUID, "droplet_guid": d.Droplet})
	})
	if err != nil {
		return nil, rest.Missing("Deployment", refusedOf(err))
	}
	h.Platform.LogToApp(d.App, sentence+d.App)
	return rest.Answer{Status: http.StatusOK}, nil
}

// refusedOf turns an app.Refused error into a 422 response.
func refusedOf(err error) error {
	if e, ok := errors.AsType[*app.Refused](err); ok {
		return rest.Unprocessable("%s", e.Reason)
	}
	return err
}

// newDeployment reads the request for a new deployment.
func newDeployment(b v3.CreateDeployment) (app.NewDeployment, error) {
	n := app.NewDeployment{
		App: b.Relationships.App.ID(), Strategy: app.Rolling, Options: app.DeploymentOptions{MaxInFlight: 1},
		Metadata: app.Metadata{}.Merge(platform.MetadataChange(b.Metadata)),
	}
	if b.Strategy != nil {
		n.Strategy = *b.Strategy
	}
	if n.Strategy != app.Rolling && n.Strategy != app.Canary {
		return n, rest.Unprocessable("Strategy '%s' is not a supported deployment strategy", n.Strategy)
	}
	if b.Droplet != nil {
		n.Droplet = b.Droplet.GUID
	}
	if b.Revision != nil {
		n.Revision = b.Revision.GUID
		if n.Droplet != "" {
			return n, rest.Unprocessable("Droplet Cannot set both fields 'droplet' and 'revision'")
		}
	}
	if err := n.Metadata.Validate(); err != nil {
		return n, err
	}
	if b.Options == nil {
		return n, nil
	}
	return n, setOptions(&n.Options, *b.Options, n.Strategy)
}

// setOptions reads the options of a deployment; null leaves an option unchanged.
func setOptions(to *app.DeploymentOptions, o v3.DeploymentOptions, strategy string) error {
	for _, number := range []struct {
		key  string
		from *v3.Int
		to   func(n int)
		text string
		min  v3.Int
	}{
		{"options.max_in_flight", o.MaxInFlight, func(n int) { to.MaxInFlight = n }, "must be an integer greater than 0", 1},
		{"options.web_instances", o.WebInstances, func(n int) { to.WebInstances = &n }, "must be greater than or equal to 0", 0},
		{"options.memory_in_mb", o.MemoryInMB, func(n int) { to.MemoryMB = &n }, "must be greater than 0", 1},
		{"options.disk_in_mb", o.DiskInMB, func(n int) { to.DiskMB = &n }, "must be greater than 0", 1},
		{"options.log_rate_limit_in_bytes_per_second", o.LogRateLimit, func(n int) { rate := int64(n); to.LogRate = &rate }, "must be greater than or equal to -1", -1},
	} {
		if number.from == nil {
			continue
		}
		if *number.from < number.min {
			return &app.Invalid{Key: number.key, Message: number.text}
		}
		number.to(int(*number.from))
	}
	if o.Canary == nil {
		return nil
	}
	if strategy != app.Canary {
		return &app.Invalid{Key: "options.canary", Message: "are only valid for Canary deployments"}
	}
	return setSteps(to, o.Canary.Steps)
}

func setSteps(to *app.DeploymentOptions, steps []v3.CanaryStep) error {
	const key = "options.canary.steps"
	for _, step := range steps {
		switch {
		case step.InstanceWeight == nil:
			return &app.Invalid{Key: key, Message: `missing key: "instance_weight"`}
		case *step.InstanceWeight < 1 || *step.InstanceWeight > 100:
			return &app.Invalid{Key: key + ".instance_weight", Message: "must be an Integer between 1-100 (inclusive)"}
		}
		to.Steps = append(to.Steps, int(*step.InstanceWeight))
	}
	if !slices.IsSorted(to.Steps) {
		return &app.Invalid{Key: key + ".instance_weight", Message: "must be sorted in ascending order"}
	}
	return nil
}

func (h deploymentHandlers) presentDeployment(d app.Deployment) v3.Deployment {
	self := h.Links.Href("v3", "deployments", d.GUID)
	value, reason := d.Status()
	out := v3.Deployment{
		GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(d.UpdatedAt), Strategy: d.Strategy,
		Status: v3.DeploymentStatus{Value: value, Reason: reason, Details: v3.DeploymentDetails{
			LastHealthy: v3.At(d.HealthyAt), LastChange: v3.At(d.ChangedAt), Error: d.Error,
		}},
		Options: presentOptions(d), Droplet: dropletGUID(d.Droplet), PreviousDroplet: dropletGUID(d.PreviousDroplet),
		NewProcesses:  []v3.NewProcess{{GUID: app.GenerationGUID(d.App, d.Generation), Type: app.Web}},
		Relationships: v3.DeploymentRelationships{App: v3.To(d.App)},
		Metadata:      rest.PresentMetadata(d.Metadata),
		Links:         v3.Links{"self": {Href: self}, "app": {Href: h.Links.Href("v3", "apps", d.App)}},
	}
	if d.Revision != "" {
		version := v3.Int(d.RevisionVersion)
		out.Revision = &v3.DeploymentRevision{GUID: d.Revision, Version: &version}
	}
	if d.Strategy == app.Canary {
		out.Status.Canary = &v3.CanaryStatus{Steps: v3.CanarySteps{Current: d.Step, Total: d.Steps()}}
	}
	if d.Active() {
		out.Links["cancel"] = v3.Link{Href: self + "/actions/cancel", Method: http.MethodPost}
	}
	if d.State == app.Paused {
		out.Links["continue"] = v3.Link{Href: self + "/actions/continue", Method: http.MethodPost}
	}
	return out
}

func presentOptions(d app.Deployment) v3.DeploymentOptions {
	number := func(n *int) *v3.Int {
		if n == nil {
			return nil
		}
		v := v3.Int(*n)
		return &v
	}
	out := v3.DeploymentOptions{
		MaxInFlight: number(&d.Options.MaxInFlight), WebInstances: number(d.Options.WebInstances),
		MemoryInMB: number(d.Options.MemoryMB), DiskInMB: number(d.Options.DiskMB),
	}
	if d.Options.LogRate != nil {
		rate := v3.Int(*d.Options.LogRate)
		out.LogRateLimit = &rate
	}
	if len(d.Options.Steps) == 0 {
		return out
	}
	out.Canary = &v3.CanaryOptions{}
	for _, weight := range d.Options.Steps {
		out.Canary.Steps = append(out.Canary.Steps, v3.CanaryStep{InstanceWeight: number(&weight)})
	}
	return out
}

func dropletGUID(guid string) v3.DropletGUID {
	if strings.TrimSpace(guid) == "" {
		return v3.DropletGUID{}
	}
	return v3.DropletGUID{GUID: &guid}
}
