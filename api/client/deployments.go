package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// CreateDeployment starts to replace the instances of an app.
func (c Apps) CreateDeployment(ctx context.Context, body v3.CreateDeployment) (v3.Deployment, error) {
	var d v3.Deployment
	_, err := c.call(ctx, http.MethodPost, "/v3/deployments", body, &d)
	return d, err
}

// Deployment reads a deployment.
func (c Apps) Deployment(ctx context.Context, guid string) (v3.Deployment, error) {
	var d v3.Deployment
	_, err := c.call(ctx, http.MethodGet, "/v3/deployments/"+escape(guid), nil, &d)
	return d, err
}

// ActiveDeployment finds the unfinished deployment of an app. It returns false if there
// is none.
func (c Apps) ActiveDeployment(ctx context.Context, app string) (v3.Deployment, bool, error) {
	q := newest()
	q.Set("app_guids", filter(app))
	q.Set("status_values", v3.DeploymentActive)
	ds, err := list[v3.Deployment](ctx, c.transport, "/v3/deployments", q)
	if err != nil || len(ds) == 0 {
		return v3.Deployment{}, false, err
	}
	return ds[0], true, nil
}

// CancelDeployment restores the state before a deployment.
func (c Apps) CancelDeployment(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodPost, "/v3/deployments/"+escape(guid)+"/actions/cancel", nil, nil)
	return err
}

// ContinueDeployment continues a paused canary deployment.
func (c Apps) ContinueDeployment(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodPost, "/v3/deployments/"+escape(guid)+"/actions/continue", nil, nil)
	return err
}

// Revisions lists the revisions of an app, newest first.
func (c Apps) Revisions(ctx context.Context, app string) ([]v3.Revision, error) {
	return list[v3.Revision](ctx, c.transport, "/v3/apps/"+escape(app)+"/revisions", url.Values{"order_by": {"-created_at"}})
}

// RevisionAt finds the revision of an app with a version number. It returns false if
// there is none.
func (c Apps) RevisionAt(ctx context.Context, app string, version int) (v3.Revision, bool, error) {
	vs, err := list[v3.Revision](ctx, c.transport, "/v3/apps/"+escape(app)+"/revisions", url.Values{"versions": {strconv.Itoa(version)}})
	if err != nil || len(vs) == 0 {
		return v3.Revision{}, false, err
	}
	return vs[0], true, nil
}

// DeployedRevisions lists the revisions that an app's instances run.
func (c Apps) DeployedRevisions(ctx context.Context, app string) ([]v3.Revision, error) {
	return list[v3.Revision](ctx, c.transport, "/v3/apps/"+escape(app)+"/revisions/deployed", nil)
}

// RevisionEnv reads the variables of a revision.
func (c Apps) RevisionEnv(ctx context.Context, guid string) (map[string]string, error) {
	var env v3.EnvVars
	_, err := c.call(ctx, http.MethodGet, "/v3/revisions/"+escape(guid)+"/environment_variables", nil, &env)
	return env.Var, err
}
