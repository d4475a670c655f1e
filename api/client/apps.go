package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// NoApp is the error for an app that does not exist.
type NoApp struct{ Name string }

func (n *NoApp) Error() string { return fmt.Sprintf("app %q does not exist", n.Name) }

// List lists the apps of the client's space by name.
func (c Apps) List(ctx context.Context) ([]v3.App, error) {
	q, err := c.spaceQuery(ctx)
	if err != nil {
		return nil, err
	}
	q.Set("order_by", "name")
	return list[v3.App](ctx, c.transport, "/v3/apps", q)
}

// ListIn lists the apps of any space by name.
func (c Apps) ListIn(ctx context.Context, space string) ([]v3.App, error) {
	return list[v3.App](ctx, c.transport, "/v3/apps", url.Values{"space_guids": {filter(space)}, "order_by": {"name"}})
}

// ByName finds an app of the client's space, or fails with *NoApp.
func (c Apps) ByName(ctx context.Context, name string) (v3.App, error) {
	q, err := c.spaceQuery(ctx)
	if err != nil {
		return v3.App{}, err
	}
	q.Set("names", filter(name))
	as, err := list[v3.App](ctx, c.transport, "/v3/apps", q)
	if err != nil {
		return v3.App{}, err
	}
	if len(as) == 0 {
		return v3.App{}, &NoApp{Name: name}
	}
	return as[0], nil
}

// Create creates an app without files.
func (c Apps) Create(ctx context.Context, body v3.CreateApp) (v3.App, error) {
	var a v3.App
	_, err := c.call(ctx, http.MethodPost, "/v3/apps", body, &a)
	return a, err
}

// Update changes an app.
func (c Apps) Update(ctx context.Context, guid string, body v3.UpdateApp) (v3.App, error) {
	var a v3.App
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(guid), body, &a)
	return a, err
}

// Delete deletes an app and waits until it is gone.
func (c Apps) Delete(ctx context.Context, guid string) error {
	h, err := c.call(ctx, http.MethodDelete, "/v3/apps/"+escape(guid), nil, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// Manifest reads the manifest of the app's present state, in YAML.
func (c Apps) Manifest(ctx context.Context, guid string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, Request{Method: http.MethodGet, Path: "/v3/apps/" + escape(guid) + "/manifest", Header: http.Header{"Accept": {v3.ManifestType}}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, errorOf(resp.StatusCode, b)
	}
	return b, nil
}

// SetState starts, stops or restarts an app. It changes the desired state and does not wait.
func (c Apps) SetState(ctx context.Context, guid string, action Action) (v3.App, error) {
	var a v3.App
	_, err := c.call(ctx, http.MethodPost, "/v3/apps/"+escape(guid)+"/actions/"+string(action), nil, &a)
	return a, err
}

// Action is a change of an app's state.
type Action string

// The actions of an app.
const (
	Start   Action = "start"
	Stop    Action = "stop"
	Restart Action = "restart"
)

// CrashMails reports whether dew sends mail when an app crashes.
func (c Apps) CrashMails(ctx context.Context, app string) (bool, error) {
	var m v3.CrashMails
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/apps/"+escape(app)+"/crash-mails", nil, &m)
	return m.Enabled, err
}

// SetCrashMails enables or disables the mails about crashes of an app.
func (c Apps) SetCrashMails(ctx context.Context, app string, enabled bool) error {
	_, err := c.call(ctx, http.MethodPut, "/dew/v1/apps/"+escape(app)+"/crash-mails", v3.CrashMails{Enabled: enabled}, nil)
	return err
}

// ByGUID lists the apps that have one of the guids, in all spaces that the caller can
// see.
func (c Apps) ByGUID(ctx context.Context, guids ...string) ([]v3.App, error) {
	return listByGUID[v3.App](ctx, c.transport, "/v3/apps", guids)
}

func manifest(path string, yaml []byte) Request {
	return Request{
		Method: http.MethodPost, Path: path, Body: bytes.NewReader(yaml),
		Header: http.Header{"Content-Type": {v3.ManifestType}, "Accept": {"application/json"}},
	}
}

// DiffManifest returns the changes that applying the manifest would make.
func (c Apps) DiffManifest(ctx context.Context, space string, yaml []byte) ([]v3.Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var d v3.ManifestDiff
	_, err := c.exchange(ctx, manifest("/v3/spaces/"+escape(space)+"/manifest_diff", yaml), &d)
	return d.Diff, err
}

// ApplyManifest applies the manifest, all of it or nothing, and waits until it is done.
func (c Apps) ApplyManifest(ctx context.Context, space string, yaml []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	h, err := c.exchange(ctx, manifest("/v3/spaces/"+escape(space)+"/actions/apply_manifest", yaml), nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// Env reads the variables that an instance of the app would get.
func (c Apps) Env(ctx context.Context, app string) (v3.Env, error) {
	var e v3.Env
	_, err := c.call(ctx, http.MethodGet, "/v3/apps/"+escape(app)+"/env", nil, &e)
	return e, err
}

// UpdateEnv sets variables of the app. A nil value unsets a variable.
func (c Apps) UpdateEnv(ctx context.Context, app string, vars map[string]*string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(app)+"/environment_variables", v3.UpdateEnvVars{Var: vars}, nil)
	return err
}

// Events lists the newest events of an app, newest first, at most n.
func (c Apps) Events(ctx context.Context, app string, n int) ([]v3.Event, error) {
	return list[v3.Event](ctx, c.transport, "/v3/audit_events", url.Values{
		"target_guids": {filter(app)}, "order_by": {"-created_at"}, "page": {"1"}, "per_page": {strconv.Itoa(n)},
	})
}

// SSHEnabled reports whether SSH to the instances of an app is allowed, and why not.
func (c Apps) SSHEnabled(ctx context.Context, app string) (v3.SSHEnabled, error) {
	var e v3.SSHEnabled
	_, err := c.call(ctx, http.MethodGet, "/v3/apps/"+escape(app)+"/ssh_enabled", nil, &e)
	return e, err
}

// SetFeature enables or disables a feature of an app.
func (c Apps) SetFeature(ctx context.Context, app, feature string, enabled bool) (v3.AppFeature, error) {
	var f v3.AppFeature
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(app)+"/features/"+escape(feature), v3.UpdateAppFeature{Enabled: &enabled}, &f)
	return f, err
}
