package apps

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// featureHandlers answers requests about features of apps.
type featureHandlers struct{ *Handlers }

func (h featureHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/apps/{guid}/ssh_enabled", Needs: access.Read, Resource: access.App, Handler: h.getSSHEnabled, Shape: rest.Returns[v3.SSHEnabled](200)},
		{Pattern: "GET /v3/apps/{guid}/features", Needs: access.Read, Resource: access.App, Handler: h.listFeatures, Shape: rest.Returns[v3.AppFeatures](200)},
		{Pattern: "GET /v3/apps/{guid}/features/{name}", Needs: access.Read, Resource: access.App, Handler: h.getFeature, Shape: rest.Returns[v3.AppFeature](200)},
		{
			Pattern: "PATCH /v3/apps/{guid}/features/{name}", Needs: access.Support, Resource: access.App, // developers only for some
			Handler: h.updateFeature, Shape: rest.Returns[v3.AppFeature](200).Reads(rest.JSON[v3.UpdateAppFeature]()),
		},
		{
			Pattern: "POST /dew/v1/ssh-code", Needs: access.Authenticated, // the SSH server checks the permissions
			Handler: h.createSSHCode, Shape: rest.Returns[v3.SSHCode](201),
		},
	}
}

// Cloud Foundry's reasons why SSH is disabled.
const (
	closedGlobally = "Disabled globally"
	closedInSpace  = "Disabled for space"
	closedInApp    = "Disabled for app"
)

// sshDisabledReason returns why SSH is disabled for an app, or "" if it is enabled.
func (h *Handlers) sshDisabledReason(a app.App) (string, error) {
	sp, err := h.Platform.Registry.Space(a.Space)
	switch {
	case err != nil && !errors.Is(err, app.ErrNotFound):
		return "", err
	case h.SSH == nil:
		return closedGlobally, nil
	case sp.NoSSH:
		return closedInSpace, nil
	case a.NoSSH:
		return closedInApp, nil
	}
	return "", nil
}

func (h featureHandlers) getSSHEnabled(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	why, err := h.sshDisabledReason(a)
	return v3.SSHEnabled{Enabled: why == "", Reason: why}, err
}

func (h featureHandlers) listFeatures(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	self := v3.Link{Href: h.Links.Href("v3", "apps", a.GUID, "features")}
	out := v3.AppFeatures{Resources: []v3.AppFeature{}}
	for _, f := range app.Features() {
		out.Resources = append(out.Resources, presentFeature(a, f))
	}
	out.Pagination = v3.Pagination{TotalResults: len(out.Resources), TotalPages: 1, First: self, Last: self}
	return out, nil
}

func (h featureHandlers) getFeature(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	f, ok := app.FeatureNamed(r.PathValue("name"))
	if !ok {
		return nil, rest.NotFound("Feature")
	}
	return presentFeature(a, f), nil
}

// updateFeature enables or disables a feature. Supporters cannot change SSH access.
func (h featureHandlers) updateFeature(r *http.Request) (any, error) {
	f, ok := app.FeatureNamed(r.PathValue("name"))
	if !ok {
		return nil, rest.NotFound("Feature")
	}
	if f.Name == app.FeatureSSH {
		if _, err := h.Present.AppInBody(r.Context(), access.Develop, r.PathValue("guid")); err != nil {
			return nil, rest.Missing("App", err)
		}
	}
	body, err := rest.Decode[v3.UpdateAppFeature](r)
	if err != nil {
		return nil, err
	}
	if body.Enabled == nil {
		return nil, rest.Unprocessable("Enabled must be a boolean")
	}
	a, err := h.Present.ChangeApp(r, "audit.app.update", map[string]any{f.Column: *body.Enabled}, func(_ platform.Tx, a *app.App) error {
		f.Set(a, *body.Enabled)
		if a.K8sBindings && a.VCAPBindings {
			return rest.Unprocessable(app.OneBindingForm)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return presentFeature(a, f), nil
}

func presentFeature(a app.App, f app.Feature) v3.AppFeature {
	return v3.AppFeature{Name: f.Name, Description: f.Description, Enabled: f.Enabled(a)}
}

// createSSHCode gives the caller a code that identifies them to the SSH server. The SSH
// server checks what they can access.
func (h featureHandlers) createSSHCode(r *http.Request) (any, error) {
	if h.SSH == nil {
		return nil, rest.Unprocessable("dewd has no SSH server. Start dewd with --ssh ADDRESS.")
	}
	code, err := h.Platform.Auth.Code(access.Principal(r.Context()))
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: v3.SSHCode{
		Code: code, Address: h.SSH.For(h.Links.Public.Hostname()), Fingerprint: h.SSH.Fingerprint,
	}}, nil
}

// AllowSSH returns why a user cannot open an SSH session to an app, or nil if they can.
// It needs permission to develop in the space, and SSH must be enabled.
func (h *Handlers) AllowSSH(who auth.Principal, a app.App) error {
	perms, err := h.Access.PermissionsOf(who)
	if err != nil {
		return err
	}
	if !access.HasScope(who, http.MethodPost) || !perms.Can(access.Develop, a.Space) || perms.Suspended(perms.OrgOf[a.Space]) {
		return errors.New("the process does not exist, or you are not allowed to use SSH with it")
	}
	why, err := h.sshDisabledReason(a)
	if err == nil && why != "" {
		err = errors.New("ssh is not enabled for app '" + a.Name + "': " + why)
	}
	return err
}

// RecordSSH stores an event for an attempt to open an SSH session to an app's instance.
// refused is the reason if it was refused, nil otherwise.
func (h *Handlers) RecordSSH(who auth.Principal, a app.App, index int, refused error) {
	kind := "audit.app.ssh-authorized"
	if refused != nil {
		kind = "audit.app.ssh-unauthorized"
	}
	err := h.Platform.ChangeAs(access.Actor(who), func(w platform.Tx) error {
		return w.Record(kind, a, map[string]any{"index": index})
	})
	if err != nil {
		h.Platform.Log.Error("cannot record an SSH login", "kind", kind, "app", a.GUID, "err", err)
	}
}
