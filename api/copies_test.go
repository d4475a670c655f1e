package api

import (
	"archive/zip"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

// pushed creates an app with a package and a droplet staged from it.
func (w *testServer) pushed(name string) (a v3.App, pkg, droplet string) {
	w.t.Helper()
	a = w.createApp(name)
	p := w.createPackage(a.GUID)
	body, kind := form(w.t, "[]", zipped(w.t, map[string]string{"Procfile": "web: ./serve\n", "serve": "#!/bin/sh\n"}))
	w.upload(p.GUID, body, kind)
	return a, p.GUID, w.stage(p.GUID).Droplet.GUID
}

func toApp(guid string) string {
	return `{"relationships":{"app":{"data":{"guid":"` + guid + `"}}}}`
}

func TestCopies(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, pkg, droplet := w.pushed("shop")
	other := w.createApp("other")

	var p v3.Package
	w.want(201, "POST", "/v3/packages?source_guid="+pkg, toApp(other.GUID), &p)
	if p.State != v3.PackageReady || p.Relationships.App.ID() != other.GUID || p.GUID == pkg {
		t.Errorf("copy = %+v, want a READY package of the other app", p)
	}
	got := w.download("/v3/packages/" + p.GUID)
	z := must(zip.NewReader(bytes.NewReader(got.Body.Bytes()), int64(got.Body.Len())))(t)
	if len(z.File) != 2 || got.Header().Get("Content-Type") != "application/zip" {
		t.Errorf("download has %d files of type %s, want a zip with 2", len(z.File), got.Header().Get("Content-Type"))
	}
	var d v3.Droplet
	w.want(201, "POST", "/v3/droplets?source_guid="+droplet, toApp(other.GUID), &d)
	if d.State != v3.DropletStaged || d.ProcessTypes["web"] != "./serve" || d.Relationships.App.ID() != other.GUID {
		t.Errorf("copy = %+v, want a STAGED droplet of the other app", d)
	}
	w.want(200, "PATCH", "/v3/apps/"+other.GUID+"/relationships/current_droplet", `{"data":{"guid":"`+d.GUID+`"}}`, nil)
	w.want(200, "POST", "/v3/apps/"+other.GUID+"/actions/start", "", nil)

	wantError(t, w.request("DELETE", "/v3/droplets/"+d.GUID, ""), "CF-UnprocessableEntity", "The app or one of its tasks runs it")
	w.complete(w.want(202, "DELETE", "/v3/droplets/"+droplet, "", nil))
	w.complete(w.want(202, "DELETE", "/v3/packages/"+pkg, "", nil))
	w.want(404, "GET", "/v3/droplets/"+droplet, "", nil)
	w.want(404, "GET", "/v3/packages/"+pkg, "", nil)
	w.want(404, "DELETE", "/v3/packages/"+pkg, "", nil)
	w.want(302, "GET", "/v3/packages/"+p.GUID+"/download", "", nil)
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.app.package.delete,audit.app.droplet.delete,audit.app.package.download&target_guids="+a.GUID+","+other.GUID, "", &events)
	if len(events.Resources) != 4 {
		t.Errorf("events = %v, want two deletions and two downloads", eventTypes(events.Resources))
	}
}

func TestCopiesRefused(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, pkg, droplet := w.pushed("shop")
	other := w.createApp("other")
	empty := w.createPackage(a.GUID).GUID
	var awaiting v3.Droplet
	w.want(201, "POST", "/v3/droplets", toApp(a.GUID), &awaiting)
	for _, tt := range []struct{ path, body, detail string }{
		{"/v3/packages?source_guid=" + pkg, toApp(a.GUID), "Source and destination app cannot be the same"},
		{"/v3/packages?source_guid=" + pkg, toApp("nonesuch"), "does not exist"},
		{"/v3/packages?source_guid=nonesuch", toApp(other.GUID), "Unable to use package"},
		{"/v3/packages?source_guid=" + empty, toApp(other.GUID), "The package has no bits to copy."},
		{"/v3/packages?source_guid=" + pkg, `{"type":"bits"}`, "Unknown field"},
		{"/v3/droplets?source_guid=" + awaiting.GUID, toApp(other.GUID), "source droplet is not staged"},
		{"/v3/droplets?source_guid=" + droplet, toApp("nonesuch"), "does not exist"},
	} {
		wantError(t, w.request("POST", tt.path, tt.body), "CF-UnprocessableEntity", tt.detail)
	}
	wantError(t, w.request("POST", "/v3/droplets?source_guid=nonesuch", toApp(other.GUID)), "CF-ResourceNotFound", "Droplet not found")
	wantError(t, w.request("GET", "/v3/packages/"+empty+"/download", ""), "CF-UnprocessableEntity", "Package has no bits to download.")

	// A user who can only read an app can copy its droplet, but not its package.
	org := w.createOrg("elsewhere")
	space := w.createSpace(org.GUID, "mine")
	guid := w.user("eve")
	w.grant(guid, auth.OrgUser, org.GUID)
	w.grant(guid, auth.SpaceDeveloper, space.GUID)
	w.grant(guid, auth.OrgUser, w.space.Org)
	w.grant(guid, auth.SpaceAuditor, w.space.GUID)
	token := w.login("eve")
	var mine v3.App
	decodeInto(t, w.as(token, "POST", "/v3/apps", `{"name":"mine","relationships":{"space":{"data":{"guid":"`+space.GUID+`"}}}}`), &mine)
	for path, want := range map[string]int{"/v3/packages?source_guid=" + pkg: 403, "/v3/droplets?source_guid=" + droplet: 201} {
		if got := w.as(token, "POST", path, toApp(mine.GUID)); got.Code != want {
			t.Errorf("%s as auditor = %d %s, want %d", path, got.Code, got.Body, want)
		}
	}
}

// One request deletes a droplet while another sets it as the app's current one. Either
// the droplet stays and is current, or it is deleted and the app keeps the previous
// one.
func TestDropletRemovedWhileChosen(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, _, first := w.pushed("shop")
	_, _, from := w.pushed("source")
	current := "/v3/apps/" + a.GUID + "/relationships/current_droplet"
	for range 30 {
		w.want(200, "PATCH", current, `{"data":{"guid":"`+first+`"}}`, nil)
		var d v3.Droplet
		w.want(201, "POST", "/v3/droplets?source_guid="+from, toApp(a.GUID), &d)
		removal := make(chan *httptest.ResponseRecorder)
		go func() { removal <- w.request("DELETE", "/v3/droplets/"+d.GUID, "") }()
		chosen := w.request("PATCH", current, `{"data":{"guid":"`+d.GUID+`"}}`).Code
		if r := <-removal; r.Code == 202 {
			w.finish(r.Header())
		}
		left := w.request("GET", "/v3/droplets/"+d.GUID, "").Code
		if chosen == 200 && left != 200 || chosen != 200 && left != 404 {
			t.Fatalf("the choice was answered with %d, the droplet now with %d", chosen, left)
		}
	}
}

// The droplet of a task stays until the task has finished.
func TestDropletOfATaskStays(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, _, d := w.pushed("shop")
	var task v3.Task
	w.want(202, "POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"sleep 1000","droplet_guid":"`+d+`"}`, &task)
	wantError(t, w.request("DELETE", "/v3/droplets/"+d, ""), "CF-UnprocessableEntity", "Wait until the tasks have finished")
	must(w.c.Registry.UpdateTask(task.GUID, func(t *app.Task) error { t.State = app.TaskFailed; return nil }))(t)
	w.finish(w.want(202, "DELETE", "/v3/droplets/"+d, "", nil))
	w.want(404, "GET", "/v3/droplets/"+d, "", nil)
}

// The URL of a download stops working when the user who got it loses the permission.
func TestDownloadURLFollowsPermissions(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	_, pkg, droplet := w.pushed("shop")
	open := func(to string) int {
		got := httptest.NewRecorder()
		w.listener.ServeHTTP(got, httptest.NewRequest(http.MethodGet, to, http.NoBody))
		return got.Code
	}
	for name, withdraw := range map[string]func(role auth.Role) error{
		"role":    func(role auth.Role) error { return w.c.Roles.Delete(role.GUID) },
		"account": func(role auth.Role) error { return w.c.Auth.Accounts().DeleteUser(role.User) },
		"token": func(role auth.Role) error {
			_, err := w.c.Auth.Accounts().UpdateUser(role.User, func(u *auth.User) error { u.Epoch++; return nil })
			return err
		},
		"another role": func(role auth.Role) error {
			w.grant(role.User, auth.SpaceAuditor, w.space.GUID)
			return w.c.Roles.Delete(role.GUID)
		},
	} {
		user := strings.ReplaceAll(name, " ", "-")
		role := w.grant(w.user(user), auth.SpaceDeveloper, w.space.GUID)
		token := w.login(user)
		var urls []string
		for _, path := range []string{"/v3/packages/" + pkg, "/v3/droplets/" + droplet} {
			urls = append(urls, w.as(token, http.MethodGet, path+"/download", "").Header().Get("Location"))
		}
		for _, to := range urls {
			if got := open(to); got != 200 {
				t.Errorf("%s: %s = %d before", name, to, got)
			}
		}
		if err := withdraw(role); err != nil {
			t.Fatal(err)
		}
		for i, to := range urls {
			want := 404
			if name == "another role" && w.as(token, http.MethodGet, []string{"/v3/packages/" + pkg, "/v3/droplets/" + droplet}[i]+"/download", "").Code == 302 {
				want = 200 // the role is enough for this file
			}
			if got := open(to); got != want {
				t.Errorf("%s: %s = %d after, want %d", name, to, got, want)
			}
		}
	}
}
