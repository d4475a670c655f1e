package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/testkit"
)

func (w *testServer) createOrg(name string) v3.Organization {
	w.t.Helper()
	var o v3.Organization
	w.want(201, "POST", "/v3/organizations", `{"name":"`+name+`","suspended":false}`, &o)
	return o
}

func (w *testServer) createSpace(org, name string) v3.Space {
	w.t.Helper()
	var sp v3.Space
	w.want(201, "POST", "/v3/spaces", `{"name":"`+name+`","relationships":{"organization":{"data":{"guid":"`+org+`"}}}}`, &sp)
	return sp
}

// askAs sends a request with a token, or over the socket if the token is empty.
func (w *testServer) askAs(token, method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	if token == "" {
		return w.request(method, path, body)
	}
	return w.as(token, method, path, body)
}

// names returns the names in a list, as the user of the token sees it.
func (w *testServer) names(token, path string) []string {
	w.t.Helper()
	got := w.askAs(token, "GET", path, "")
	if got.Code != http.StatusOK {
		w.t.Fatalf("GET %s = %d %s, want 200", path, got.Code, got.Body)
	}
	page := must(rest.DecodeBytes[struct {
		Pagination any `json:"pagination"`
		Included   any `json:"included"`
		Resources  []map[string]any
	}](got.Body.Bytes()))(w.t)
	names := []string{}
	for _, r := range page.Resources {
		for _, key := range []string{"name", "presentation_name", "type"} {
			if name, ok := r[key].(string); ok {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

func (w *testServer) wantNames(token, path string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(w.names(token, path), append([]string{}, want...)); diff != "" {
		w.t.Errorf("GET %s (-got +want):\n%s", path, diff)
	}
}

// refused checks that a request such as GET /v3/apps gets a status and a text, such as
// 404 App not found.
func (w *testServer) refused(token, request, body, want string) {
	w.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	status, detail, _ := strings.Cut(want, " ")
	got := w.askAs(token, method, path, body)
	if strconv.Itoa(got.Code) != status {
		w.t.Errorf("%s %s = %d %s, want %s", request, body, got.Code, got.Body, status)
		return
	}
	title := map[string]string{"400": "CF-BadQueryParameter", "403": "CF-NotAuthorized", "404": "CF-ResourceNotFound", "422": "CF-UnprocessableEntity"}[status]
	wantError(w.t, got, title, detail)
}

func TestOrgs(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o := w.createOrg("shop")
	w.createOrg("bank")
	w.refused("", "POST /v3/organizations", `{"name":"shop"}`, "422 Organization 'shop' already exists.")
	w.refused("", "POST /v3/organizations", `{"name":""}`, "422 name: must not be empty")
	w.refused("", "POST /v3/organizations", `{"name":"x","metadata":{"labels":{"-":"b"}}}`, "422 metadata.labels")
	w.refused("", "PATCH /v3/organizations/"+o.GUID, `{"name":"bank"}`, "422 Organization 'bank' already exists.")
	w.refused("", "GET /v3/organizations/nowhere", "", "404 Organization not found")
	w.refused("", "PATCH /v3/organizations/nowhere", "{}", "404 Organization not found")
	w.refused("", "DELETE /v3/organizations/nowhere", "", "404 Organization not found")
	w.refused("", "GET /v3/organizations?label_selector=a%20in%20(", "", "400 label_selector")

	var got v3.Organization
	w.want(200, "PATCH", "/v3/organizations/"+o.GUID, `{"name":"stores","suspended":true,"metadata":{"labels":{"tier":"gold","old":null}}}`, &got)
	if got.Name != "stores" || !got.Suspended || *got.Metadata.Labels["tier"] != "gold" || got.GUID != o.GUID {
		t.Errorf("changed org = %+v", got)
	}
	w.want(200, "GET", "/v3/organizations/"+o.GUID, "", &got)
	if got.Name != "stores" || !got.Suspended {
		t.Errorf("org = %+v", got)
	}
	w.wantNames("", "/v3/organizations?order_by=name", "bank", "local", "stores")
	w.wantNames("", "/v3/organizations?order_by=-name&per_page=1", "stores")
	w.wantNames("", "/v3/organizations?names=bank,stores&order_by=name", "bank", "stores")
	w.wantNames("", "/v3/organizations?guids="+o.GUID, "stores")
	w.wantNames("", "/v3/organizations?label_selector=tier%3Dgold", "stores")
	w.wantNames("", "/v3/organizations?label_selector=!tier&order_by=name", "bank", "local")
	golden(t, "organization", w.request("GET", "/v3/organizations/"+o.GUID, "").Body.Bytes())
	golden(t, "organization-quota", w.request("GET", "/v3/organizations/"+o.GUID+"/relationships/quota", "").Body.Bytes())
	wantEvents(t, w, o.GUID, "audit.organization.create", "audit.organization.update")
}

func wantEvents(t *testing.T, w *testServer, target string, want ...string) {
	t.Helper()
	var es v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+target, "", &es)
	if diff := cmp.Diff(eventTypes(es.Resources), want); diff != "" {
		t.Errorf("events of %s (-got +want):\n%s", target, diff)
	}
}

// Users can create orgs only if the feature flag is enabled, and become manager of
// their org.
func TestUserCreatesOrg(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.user("ann")
	ann := w.login("ann")
	w.refused(ann, "POST /v3/organizations", `{"name":"anns"}`, "403 You are not authorized")
	must(w.c.Registry.UpdateFlag(app.FlagUserOrgCreation, func(f *app.Flag) { f.Enabled = true }))(t)
	w.refused(ann, "POST /v3/organizations", `{"name":"anns","suspended":true}`, "403 You are not authorized")
	if got := w.as(ann, "POST", "/v3/organizations", `{"name":"anns"}`); got.Code != 201 {
		t.Fatalf("POST = %d %s, want 201", got.Code, got.Body)
	}
	w.wantNames(ann, "/v3/organizations", "anns")
	o := must(w.c.Registry.OrgByName("anns"))(t)
	w.refused(ann, "PATCH /v3/organizations/"+o.GUID, `{"suspended":true}`, "403 You are not authorized")
	w.refused(ann, "DELETE /v3/organizations/"+o.GUID, "", "403 You are not authorized")
	if got := w.as(ann, "PATCH", "/v3/organizations/"+o.GUID, `{"name":"hers"}`); got.Code != 200 {
		t.Errorf("PATCH = %d %s, want 200", got.Code, got.Body)
	}
}

func TestSpacesOfOrg(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o := w.createOrg("shop")
	sp := w.createSpace(o.GUID, "test")
	body := func(org, name string) string {
		return `{"name":"` + name + `","relationships":{"organization":{"data":{"guid":"` + org + `"}}}}`
	}
	w.createSpace(w.space.Org, "test") // another org can have the same name
	w.refused("", "POST /v3/spaces", body(o.GUID, "test"), "422 Name must be unique per organization")
	w.refused("", "POST /v3/spaces", body("nowhere", "x"), "422 Invalid organization. Ensure the organization exists and you have access to it.")
	w.refused("", "POST /v3/spaces", `{"name":"x"}`, "422 Invalid organization.")
	w.refused("", "POST /v3/spaces", body(o.GUID, ""), "422 name: must not be empty")
	w.createSpace(o.GUID, "prod")
	w.refused("", "PATCH /v3/spaces/"+sp.GUID, `{"name":"prod"}`, "422 Name must be unique per organization")
	w.refused("", "GET /v3/spaces/nowhere", "", "404 Space not found")
	w.refused("", "GET /v3/spaces?include=cats", "", "400 Invalid included resource: 'cats'")

	w.want(200, "PATCH", "/v3/spaces/"+sp.GUID, `{"name":"stage","metadata":{"labels":{"a":"b"},"annotations":{"note":"some text"}}}`, &sp)
	w.wantNames("", "/v3/spaces?organization_guids="+o.GUID+"&order_by=name", "prod", "stage")
	w.wantNames("", "/v3/spaces?names=stage", "stage")
	w.wantNames("", "/v3/spaces?label_selector=a", "stage")
	golden(t, "space", w.request("GET", "/v3/spaces/"+sp.GUID+"?include=organization", "").Body.Bytes())
	golden(t, "spaces-with-orgs", w.request("GET", "/v3/spaces?include=org&names=stage,prod", "").Body.Bytes())
	golden(t, "isolation-segment", w.request("GET", "/v3/spaces/"+sp.GUID+"/relationships/isolation_segment", "").Body.Bytes())
	wantEvents(t, w, sp.GUID, "audit.space.create", "audit.space.update")
}

func TestSpaceFeatures(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	path := "/v3/spaces/" + w.space.GUID + "/features"
	var f v3.SpaceFeature
	w.want(200, "GET", path+"/ssh", "", &f)
	if !f.Enabled || f.Name != "ssh" {
		t.Errorf("feature = %+v, want ssh to be on", f)
	}
	w.want(200, "PATCH", path+"/ssh", `{"enabled":false}`, &f)
	var all v3.SpaceFeatures
	w.want(200, "GET", path, "", &all)
	if f.Enabled || len(all.Resources) != 1 || all.Resources[0].Enabled || !must(w.c.Registry.Space(w.space.GUID))(t).NoSSH {
		t.Errorf("feature = %+v, features = %+v, want ssh to be off", f, all)
	}
	w.refused("", "PATCH "+path+"/ssh", `{}`, "422 Enabled must be a boolean")
	w.refused("", "GET "+path+"/cats", "", "404 Feature not found")
	w.refused("", "PATCH "+path+"/cats", `{"enabled":true}`, "404 Feature not found")
}

// Deleting an org deletes its spaces, apps, routes, domains, roles and files. Repeating
// it changes nothing, so a restarted daemon can continue.
func TestDeleteOrg(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o := w.createOrg("shop")
	sp := w.createSpace(o.GUID, "test")
	w.space = must(w.c.Registry.Space(sp.GUID))(t)
	a := w.startedApp("front")
	pkg := w.createPackage(a.GUID)
	d := must(w.c.Registry.PutDomain(app.Domain{Name: "shop.example.com", Org: o.GUID}))(t)
	rt := must(w.c.Registry.PutRoute(app.Route{Space: sp.GUID, Domain: d.GUID, Host: "www", Destinations: []app.Destination{{App: a.GUID}}}))(t)
	ann := w.user("ann")
	w.grant(ann, auth.OrgUser, o.GUID)
	w.grant(ann, auth.SpaceDeveloper, sp.GUID)
	changed := make(chan string, 100) // GUIDs of changed processes
	w.c.Registry.Listen(func(process string) { changed <- process })

	if j := w.finish(w.want(202, "DELETE", "/v3/organizations/"+o.GUID, "", nil)); j.State != v3.JobComplete || j.Operation != "organization.delete" {
		t.Fatalf("job = %+v", j)
	}
	for path, noun := range map[string]string{
		"/v3/organizations/" + o.GUID: "Organization", "/v3/spaces/" + sp.GUID: "Space", "/v3/apps/" + a.GUID: "App",
		"/v3/routes/" + rt.GUID: "Route", "/v3/domains/" + d.GUID: "Domain",
	} {
		w.refused("", "GET "+path, "", "404 "+noun+" not found")
	}
	if roles := must(w.c.Roles.All())(t); len(roles) > 0 {
		t.Errorf("roles = %+v, want none", roles)
	}
	select {
	case first := <-changed:
		if first != a.GUID {
			t.Errorf("process that changed = %v, want that of the app", first)
		}
	case <-time.After(testkit.Patience):
		t.Error("nobody was told that the process of the app is gone")
	}
	testkit.EventuallyTrue(t, "the package is gone", func() bool {
		_, err := w.c.Packages.Get(pkg.GUID)
		return platform.IsNotFound(err)
	})
	del := platform.Deletions{Platform: w.s.platform}
	if err := errors.Join(del.DeleteOrg(context.Background(), o.GUID), del.DeleteSpace(context.Background(), sp.GUID)); err != nil {
		t.Errorf("once more: %v", err)
	}
	w.wantNames("", "/v3/spaces", "dev")
}

func TestDeleteSpace(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("front")
	other := w.createSpace(w.space.Org, "other")
	w.grant(w.user("ann"), auth.SpaceDeveloper, w.space.GUID)
	kept := w.grant(w.user("bob"), auth.SpaceDeveloper, other.GUID)
	if j := w.finish(w.want(202, "DELETE", "/v3/spaces/"+w.space.GUID, "", nil)); j.State != v3.JobComplete {
		t.Fatalf("job = %+v", j)
	}
	w.refused("", "GET /v3/apps/"+a.GUID, "", "404 App not found")
	w.wantNames("", "/v3/spaces", "other")
	if diff := cmp.Diff(must(w.c.Roles.All())(t), []auth.Role{kept}); diff != "" {
		t.Errorf("roles (-got +want):\n%s", diff)
	}
	wantEvents(t, w, w.space.GUID, "audit.space.delete-request")
}

// Users see the orgs and spaces of their roles; managers of an org see all its spaces.
func TestOrgAndSpaceVisibility(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	o := w.createOrg("shop")
	a, b := w.createSpace(o.GUID, "a"), w.createSpace(o.GUID, "b")
	for _, tt := range []struct {
		role   auth.RoleType
		place  string
		orgs   []string
		spaces []string
	}{
		{auth.OrgManager, o.GUID, []string{"shop"}, []string{"a", "b"}},
		{auth.OrgAuditor, o.GUID, []string{"shop"}, nil},
		{auth.OrgBilling, o.GUID, []string{"shop"}, nil},
		{auth.OrgUser, o.GUID, []string{"shop"}, nil},
		{auth.SpaceDeveloper, a.GUID, []string{"shop"}, []string{"a"}},
		{auth.SpaceManager, b.GUID, []string{"shop"}, []string{"b"}},
		{auth.SpaceAuditor, b.GUID, []string{"shop"}, []string{"b"}},
		{auth.SpaceSupporter, a.GUID, []string{"shop"}, []string{"a"}},
	} {
		t.Run(string(tt.role), func(t *testing.T) {
			guid := w.user("u-" + string(tt.role))
			token := w.login("u-" + string(tt.role))
			w.wantNames(token, "/v3/organizations")
			w.wantNames(token, "/v3/spaces")
			w.grant(guid, tt.role, tt.place)
			w.wantNames(token, "/v3/organizations", tt.orgs...)
			w.wantNames(token, "/v3/spaces?order_by=name", tt.spaces...)
		})
	}
}
