package api

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
)

// orgServer is a test server with an org that has one resource of each kind. Their names
// contain homeMark, so that a test can find them in a response.
type orgServer struct {
	*testServer
	org    app.Org
	space  app.Space
	guids  map[string]string // by resource name, or by path prefix
	app    string
	pkg    string
	tokens map[string]string // by role or user
}

var somePart = regexp.MustCompile(`\{[a-z]+\}`)

const orgMark = "homely" // part of all names

// built is a org server that is created once and whose folder is copied. Its services, builds
// and users take longer to create than most tests run.
var built struct {
	sync.Once
	dir string // empty: creating it failed
	orgServer
}

func newOrgServer(t *testing.T) *orgServer {
	t.Helper()
	built.Do(func() { storeOrgServer(t) })
	if built.dir == "" {
		t.Fatal("there is no org server: another test shows the error")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(built.dir)); err != nil {
		t.Fatal(err)
	}
	h := built.orgServer
	h.testServer, h.guids, h.tokens = newTestServerIn(t, dir), maps.Clone(h.guids), maps.Clone(h.tokens)
	h.testServer.space = h.space
	return &h
}

// storeOrgServer creates the org server that tests copy, and stops all its loops.
func storeOrgServer(t *testing.T) {
	t.Helper()
	h := buildOrgServer(t)
	for _, stop := range h.stops {
		stop()
	}
	kept, from := filepath.Join(began, "home"), filepath.Dir(h.c.UploadDir)
	if err := errors.Join(h.c.DB.Close(), h.c.Logs.Close(), os.CopyFS(kept, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
	built.dir, built.orgServer = kept, *h
}

func buildOrgServer(t *testing.T) *orgServer {
	t.Helper()
	w := newTestServer(t)
	h := &orgServer{testServer: w, guids: map[string]string{}, tokens: map[string]string{}}
	h.org = must(w.c.Registry.PutOrg(app.Org{Name: orgMark + "-org"}))(t)
	h.space = must(w.c.Registry.PutSpace(app.Space{Name: orgMark + "-space", Org: h.org.GUID}))(t)
	w.space = h.space // createApp creates apps there
	a := w.createApp(orgMark + "-app")
	h.app = a.GUID
	var sidecar v3.Sidecar
	w.want(201, "POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"`+orgMark+`","command":"x","process_types":["web"]}`, &sidecar)
	h.pkg = must(w.c.Packages.Create(a.GUID))(t).GUID
	domain := must(w.c.Registry.PutDomain(app.Domain{Name: orgMark + ".example.com", Org: h.org.GUID}))(t)
	route := must(w.c.Registry.PutRoute(app.Route{Space: h.space.GUID, Domain: domain.GUID, Host: orgMark}))(t)
	owner := w.user(orgMark + "-owner")
	w.grant(owner, auth.OrgUser, h.org.GUID)
	role := w.grant(owner, auth.SpaceManager, h.space.GUID)
	job := w.want(202, "DELETE", "/v3/routes/"+must(w.c.Registry.PutRoute(app.Route{Space: h.space.GUID, Domain: domain.GUID, Host: "gone"}))(t).GUID, "", nil)
	h.guids = map[string]string{
		"Organization": h.org.GUID, "Space": h.space.GUID, "App": a.GUID, "Process": a.GUID, "Sidecar": sidecar.GUID,
		"Package": h.pkg, "Droplet": w.giveDroplet(a.GUID, nil), "Route": route.GUID, "Role": role.GUID, "Build": h.build(t),
		"Task":        h.task(t).GUID,
		"Space quota": must(w.c.Registry.PutQuota(app.Quota{Name: orgMark, Org: h.org.GUID}))(t).GUID,
		"/v3/users/":  owner, "/v3/domains/": domain.GUID, "/v3/jobs/": w.finish(job).GUID,
		"/v3/audit_events/": must(w.c.Events.List(app.EventFilter{Spaces: []string{h.space.GUID}}))(t)[0].GUID,
		"/v3/buildpacks/":   "none", "/v3/stacks/": "none", "/dew/v1/stacks/": "none", "/routing/v1/router_groups/": "none", "/v3/organization_quotas/": "none", "/v3/security_groups/": "none", "/v3/isolation_segments/": "none", "/v3/app_usage_events/": "none", "/v3/service_usage_events/": "none", // built-in resources are not secret
	}
	h.serve(t, route.GUID)
	h.people(t)
	d := h.deploy(t)
	h.guids["Deployment"], h.guids["Revision"] = d.GUID, d.Revision
	return h
}

// deploy deploys the app, which has a droplet, and so creates a revision. The app is
// stopped before and after.
func (h *orgServer) deploy(t *testing.T) app.Deployment {
	t.Helper()
	must(h.c.Registry.UpdateApp(h.app, func(a *app.App) error { a.Env = map[string]string{"N": uuid.NewString()}; return nil }))(t)
	d := must(h.c.Registry.Deploy(app.NewDeployment{App: h.app, Strategy: app.Rolling, Options: app.DeploymentOptions{MaxInFlight: 1}}))(t)
	must(h.c.Registry.UpdateApp(h.app, func(a *app.App) error { a.State = app.Stopped; return nil }))(t)
	return d
}

// serve creates a broker in the space, and service instances with bindings.
func (h *orgServer) serve(t *testing.T, route string) {
	t.Helper()
	body := `{"name":"` + orgMark + `","url":"https://broker.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}},` +
		`"relationships":{"space":{"data":{"guid":"` + h.space.GUID + `"}}}}`
	h.complete(h.want(202, "POST", "/v3/service_brokers", body, nil))
	plan := h.plan(orgMark + "-small")
	h.complete(h.want(202, "POST", "/v3/service_instances", h.managed(orgMark+"-db", orgMark+"-small", ""), nil))
	h.complete(h.want(202, "POST", "/v3/service_instances", h.managed(orgMark+"-front", orgMark+"-gate", ""), nil))
	db, front := h.service(orgMark+"-db").GUID, h.service(orgMark+"-front").GUID
	h.complete(h.want(202, "POST", "/v3/service_credential_bindings", boundTo(db, h.app, ""), nil))
	h.complete(h.want(202, "POST", "/v3/service_route_bindings",
		`{"relationships":{"route":{"data":{"guid":"`+route+`"}},"service_instance":{"data":{"guid":"`+front+`"}}}}`, nil))
	var routes v3.List[v3.ServiceRouteBinding]
	h.want(200, "GET", "/v3/service_route_bindings", "", &routes)
	h.guids["Service instance"], h.guids["Service credential binding"] = db, h.bindings(db)[0].GUID
	h.guids["Service route binding"] = routes.Resources[0].GUID
	h.guids["/v3/service_plans/"], h.guids["/v3/service_offerings/"] = plan.GUID, plan.Relationships.ServiceOffering.ID()
	h.guids["/v3/service_brokers/"] = must(h.c.Services.Brokers(services.BrokerFilter{Names: []string{orgMark}}))(t)[0].GUID
}

// task creates a task of the app, which has a droplet.
func (h *orgServer) task(t *testing.T) app.Task {
	t.Helper()
	return must(h.c.Registry.CreateTask(app.Task{App: h.app, Name: orgMark, Command: "x", Droplet: "droplet-of-" + h.app}))(t)
}

// build stages a new package of the app.
func (h *orgServer) build(t *testing.T) string {
	t.Helper()
	p := h.createPackage(h.app)
	body, kind := form(t, "[]", zipped(t, map[string]string{"Procfile": "web: " + orgMark}))
	h.upload(p.GUID, body, kind)
	return h.stage(p.GUID).GUID
}

// people creates one user for every role in the org and space, and some others.
func (h *orgServer) people(t *testing.T) {
	t.Helper()
	// The tokens must be valid as long as tests copy the org server.
	must(h.c.Auth.Accounts().UpdateClient(auth.ClientCF, func(c *auth.Client) error { c.AccessValidity = 24 * time.Hour; return nil }))(t)
	for _, kind := range auth.RoleTypes() {
		guid := h.user("u-" + string(kind))
		if kind.OfSpace() {
			h.grant(guid, auth.OrgUser, h.org.GUID)
			h.grant(guid, kind, h.space.GUID)
		} else {
			h.grant(guid, kind, h.org.GUID)
		}
		h.tokens[string(kind)] = h.login("u-" + string(kind))
	}
	for name, scope := range map[string]string{"admin": auth.ScopeAdmin, "admin_read_only": auth.ScopeAdminReadOnly, "global_auditor": auth.ScopeGlobalAuditor} {
		h.user("u-"+name, scope)
		h.tokens[name] = h.login("u-" + name)
	}
	// A user who has all roles in another org.
	org := must(h.c.Registry.PutOrg(app.Org{Name: "elsewhere"}))(t)
	space := must(h.c.Registry.PutSpace(app.Space{Name: "elsewhere", Org: org.GUID}))(t)
	stranger := h.user("stranger")
	for _, kind := range auth.RoleTypes() {
		if kind.OfOrg() {
			h.grant(stranger, kind, org.GUID)
		} else {
			h.grant(stranger, kind, space.GUID)
		}
	}
	h.tokens["stranger"] = h.login("stranger")
	h.user("nobody")
	h.tokens["nobody"] = h.login("nobody")
}

// methodAndPath returns the method and the path for a pattern, with the GUIDs of this org server.
func (h *orgServer) methodAndPath(t testing.TB, pattern string) (method, path string) {
	t.Helper()
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		return http.MethodGet, "/nothing/here"
	}
	guid := h.guids[rights[pattern].Resource.Name]
	for prefix, g := range h.guids {
		if strings.HasPrefix(prefix, "/") && strings.HasPrefix(path, prefix) {
			guid = g
		}
	}
	if strings.Contains(path, "{guid}") && guid == "" {
		t.Fatalf("no example for the guid of %q: add one to orgServer", pattern)
	}
	path = strings.NewReplacer("{guid}", guid, "{type}", "web", "{name}", "ssh", "{org}", h.org.GUID, "{space}", h.space.GUID, "{$}", "").Replace(path)
	return method, somePart.ReplaceAllString(path, "0") // the rest of the path is checked after the org and space
}
