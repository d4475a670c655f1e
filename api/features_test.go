package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// SSH needs to be enabled for the app, the space and the daemon. The response names the
// one that is disabled.
func TestSSHEnabled(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.setSSH(&platform.SSHEndpoint{Address: "127.0.0.1:2222", Fingerprint: "f"})
	a := must(w.c.Registry.PutApp(app.App{Name: "shop", Space: w.space.GUID, State: app.Stopped}))(t)
	path := "/v3/apps/" + a.GUID
	enabled := func() (got v3.SSHEnabled) {
		w.want(http.StatusOK, http.MethodGet, path+"/ssh_enabled", "", &got)
		return got
	}
	if got := enabled(); got != (v3.SSHEnabled{Enabled: true}) {
		t.Errorf("at first: %+v, want enabled", got)
	}
	var f v3.AppFeature
	w.want(http.StatusOK, http.MethodPatch, path+"/features/ssh", `{"enabled": false}`, &f)
	want := v3.AppFeature{Name: "ssh", Description: "Enable SSHing into the app."}
	if f != want {
		t.Errorf("PATCH answers %+v, want %+v", f, want)
	}
	w.want(http.StatusOK, http.MethodGet, path+"/features/ssh", "", &f)
	var all v3.AppFeatures
	w.want(http.StatusOK, http.MethodGet, path+"/features", "", &all)
	if f != want || len(all.Resources) != 4 || all.Resources[0] != want {
		t.Errorf("afterwards: %+v and %+v, want %+v", f, all.Resources, want)
	}
	if got := enabled(); got != (v3.SSHEnabled{Reason: "Disabled for app"}) {
		t.Errorf("off for the app: %+v", got)
	}
	w.want(http.StatusOK, http.MethodPatch, "/v3/spaces/"+w.space.GUID+"/features/ssh", `{"enabled": false}`, nil)
	if got := enabled(); got != (v3.SSHEnabled{Reason: "Disabled for space"}) {
		t.Errorf("off for the space: %+v", got)
	}
	w.setSSH(nil)
	if got := enabled(); got != (v3.SSHEnabled{Reason: "Disabled globally"}) {
		t.Errorf("without an SSH server: %+v", got)
	}
}

func TestFeatureErrors(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := must(w.c.Registry.PutApp(app.App{Name: "shop", Space: w.space.GUID, State: app.Stopped}))(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/v3/apps/none/ssh_enabled", "", http.StatusNotFound},
		{http.MethodGet, "/v3/apps/none/features", "", http.StatusNotFound},
		{http.MethodGet, "/v3/apps/" + a.GUID + "/features/telepathy", "", http.StatusNotFound},
		{http.MethodPatch, "/v3/apps/" + a.GUID + "/features/telepathy", `{"enabled": true}`, http.StatusNotFound},
		{http.MethodPatch, "/v3/apps/" + a.GUID + "/features/ssh", `{}`, http.StatusUnprocessableEntity},
		{http.MethodPatch, "/v3/apps/" + a.GUID + "/features/ssh", `{"enabled": "yes"}`, http.StatusUnprocessableEntity},
		{http.MethodPatch, "/v3/apps/none/features/ssh", `{"enabled": true}`, http.StatusNotFound},
		{http.MethodPost, "/dew/v1/ssh-code", "", http.StatusUnprocessableEntity}, // the daemon has no SSH server
	} {
		if got := w.request(tt.method, tt.path, tt.body); got.Code != tt.status {
			t.Errorf("%s %s %s = %d %s, want %d", tt.method, tt.path, tt.body, got.Code, got.Body, tt.status)
		}
	}
}

// An SSH code identifies the user who requested it.
func TestSSHCode(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.setSSH(&platform.SSHEndpoint{Address: "127.0.0.1:2222", Fingerprint: "f"})
	var got v3.SSHCode
	w.want(http.StatusCreated, http.MethodPost, "/dew/v1/ssh-code", "", &got)
	if got.Code == "" || got.Address != "127.0.0.1:2222" || got.Fingerprint != "f" {
		t.Errorf("answer = %+v", got)
	}
	who, err := w.s.c.Auth.Redeem(got.Code)
	if err != nil || !who.Admin() {
		t.Errorf("the code stands for %+v, %v; want the administrator at the socket", who, err)
	}
}

// Developers of the app's space and administrators can use SSH; other users learn
// nothing. If SSH is disabled, no one can use it.
func TestAllowSSH(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.setSSH(&platform.SSHEndpoint{})
	a := must(w.c.Registry.PutApp(app.App{Name: "shop", Space: w.space.GUID, State: app.Started}))(t)
	scopes := []string{auth.ScopeRead, auth.ScopeWrite}
	for _, tt := range []struct {
		name   string
		who    auth.Principal
		role   auth.RoleType
		closed bool
		want   bool
	}{
		{name: "administrator", who: auth.Principal{ID: "u1", IsUser: true, Scopes: []string{auth.ScopeAdmin}}, want: true},
		{name: "administrator with SSH disabled", who: auth.Principal{ID: "u1", IsUser: true, Scopes: []string{auth.ScopeAdmin}}, closed: true},
		{name: "developer", who: auth.Principal{ID: "u2", IsUser: true, Scopes: scopes}, role: auth.SpaceDeveloper, want: true},
		{name: "developer with SSH disabled", who: auth.Principal{ID: "u2", IsUser: true, Scopes: scopes}, closed: true},
		{name: "developer who may only read", who: auth.Principal{ID: "u2", IsUser: true, Scopes: scopes[:1]}},
		{name: "manager", who: auth.Principal{ID: "u3", IsUser: true, Scopes: scopes}, role: auth.SpaceManager},
		{name: "auditor", who: auth.Principal{ID: "u4", IsUser: true, Scopes: scopes}, role: auth.SpaceAuditor},
		{name: "supporter", who: auth.Principal{ID: "u5", IsUser: true, Scopes: scopes}, role: auth.SpaceSupporter},
		{name: "stranger", who: auth.Principal{ID: "u6", IsUser: true, Scopes: scopes}},
		{name: "nobody", who: auth.Principal{}},
	} {
		if tt.role != "" {
			must(w.s.c.Roles.Put(auth.Role{Type: tt.role, User: tt.who.ID, Space: w.space.GUID}))(t)
		}
		a.NoSSH = tt.closed
		if err := w.s.apps.AllowSSH(tt.who, a); (err == nil) != tt.want {
			t.Errorf("%s: %v, want to enter: %v", tt.name, err, tt.want)
		}
	}
}

func TestRecordSSH(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := must(w.c.Registry.PutApp(app.App{Name: "shop", Space: w.space.GUID, State: app.Started}))(t)
	w.s.apps.RecordSSH(auth.Principal{ID: "u1", Name: "ann", IsUser: true}, a, 1, nil)
	w.s.apps.RecordSSH(auth.Principal{ID: "robot", Name: "robot"}, a, 0, errors.New("no"))
	var got []string
	for _, e := range must(w.c.Events.List(app.EventFilter{Targets: []string{a.GUID}}))(t) {
		got = append(got, e.Type+" "+e.Actor.Type+" "+e.Actor.Name+" "+e.Space)
	}
	want := []string{"audit.app.ssh-authorized user ann " + w.space.GUID, "audit.app.ssh-unauthorized client robot " + w.space.GUID}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
}

// setSSH changes the SSH server in the configuration of the server.
func (w *testServer) setSSH(endpoint *platform.SSHEndpoint) {
	w.s.apps.SSH, w.s.daemon.SSH = endpoint, endpoint
}

// An app reads its services from files if one of two features is enabled, never both.
func TestBindingFeatures(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	at := "/v3/apps/" + a.GUID + "/features/"
	var all v3.AppFeatures
	w.want(200, "GET", "/v3/apps/"+a.GUID+"/features", "", &all)
	if len(all.Resources) != 4 || all.Resources[2].Name != "service-binding-k8s" || all.Resources[2].Enabled || all.Resources[3].Name != "file-based-vcap-services" {
		t.Errorf("features = %+v", all.Resources)
	}
	var f v3.AppFeature
	if w.want(200, "PATCH", at+"service-binding-k8s", `{"enabled":true}`, &f); !f.Enabled {
		t.Errorf("feature = %+v, want it enabled", f)
	}
	both := "'file-based-vcap-services' and 'service-binding-k8s' features cannot be enabled at the same time."
	wantError(t, w.request("PATCH", at+"file-based-vcap-services", `{"enabled":true}`), "CF-UnprocessableEntity", both)
	var env v3.Env
	if w.want(200, "GET", "/v3/apps/"+a.GUID+"/env", "", &env); len(env.System) != 1 || env.System["SERVICE_BINDING_ROOT"] != "/etc/cf-service-bindings" {
		t.Errorf("system variables = %v", env.System)
	}
	w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", "applications:\n- name: shop\n  features:\n    service-binding-k8s: false\n    file-based-vcap-services: true\n    ssh: false\n    revisions: false\n", nil))
	if got := must(w.c.Registry.App(a.GUID))(t); got.K8sBindings || !got.VCAPBindings || !got.NoSSH || !got.NoRevisions {
		t.Errorf("app = %+v, want the features of the manifest", got)
	}
	if w.want(200, "GET", "/v3/apps/"+a.GUID+"/env", "", &env); env.System["VCAP_SERVICES_FILE_PATH"] != "/etc/cf-service-bindings/vcap_services" {
		t.Errorf("system variables = %v", env.System)
	}
	manifest := w.request("GET", "/v3/apps/"+a.GUID+"/manifest", "").Body.String()
	for _, want := range []string{"features:", "ssh: false", "revisions: false", "file-based-vcap-services: true"} {
		if !strings.Contains(manifest, want) {
			t.Errorf("the manifest lacks %s:\n%s", want, manifest)
		}
	}
}

// Bindings that cannot be files refuse the start, with the words of Cloud Foundry.
func TestIncompatibleBindings(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	d := droplet.Droplet{
		GUID: "d", App: a.GUID, Stack: "host", Commands: map[string]string{"web": "serve"},
		Bindings: droplet.Bindings{JSON: `{"user-provided":[{"label":"user-provided","name":"My DB","credentials":{}}]}`},
	}
	if err := w.c.Shelf.Put(d); err != nil {
		t.Fatal(err)
	}
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", `{"data":{"guid":"d"}}`, nil)
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/features/service-binding-k8s", `{"enabled":true}`, nil)
	wantError(t, w.request("POST", "/v3/apps/"+a.GUID+"/actions/start", ""), "CF-UnprocessableEntity",
		"Cannot build service binding files for app - Invalid binding name: 'My DB'. Name must match /^[a-z0-9\\-.]{1,253}$/")
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/features/service-binding-k8s", `{"enabled":false}`, nil)
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/start", "", nil)
}
