package api

import (
	"net/http"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

// A shared route is visible and usable in both spaces. When it is no longer shared, its
// destinations there are removed.
func TestShareRoute(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	other := w.createSpace(w.space.Org, "other")
	mine := w.createApp("mine")
	theirs := must(w.c.Registry.PutApp(app.App{Name: "theirs", Space: other.GUID}))(t)
	var domains v3.List[v3.Domain]
	w.want(200, "GET", "/v3/domains?names=dew.localhost", "", &domains)
	var rt v3.Route
	w.want(201, "POST", "/v3/routes", `{"host":"both","relationships":{"space":{"data":{"guid":"`+w.space.GUID+`"}},"domain":{"data":{"guid":"`+domains.Resources[0].GUID+`"}}}}`, &rt)
	at := "/v3/routes/" + rt.GUID
	to := func(guid string) string { return `{"destinations":[{"app":{"guid":"` + guid + `"}}]}` }
	w.want(200, "POST", at+"/destinations", to(mine.GUID), nil)
	wantError(t, w.request("POST", at+"/destinations", to(theirs.GUID)), "CF-UnprocessableEntity", "must be an app in the route's space")

	guid := w.user("ann")
	w.grant(guid, auth.OrgUser, w.space.Org)
	w.grant(guid, auth.SpaceDeveloper, other.GUID)
	ann := w.login("ann")
	if got := w.as(ann, "GET", at, ""); got.Code != http.StatusNotFound {
		t.Errorf("the route of another space = %d, want 404", got.Code)
	}
	shares := at + "/relationships/shared_spaces"
	var shared v3.SharedSpaces
	w.want(200, "POST", shares, `{"data":[{"guid":"`+other.GUID+`"}]}`, &shared)
	if len(shared.Data) != 1 || shared.Data[0].GUID != other.GUID {
		t.Errorf("shared with %v, want the other space", shared.Data)
	}
	for request, want := range map[[3]string]int{
		{"GET", at, ""}: 200,
		{"POST", at + "/destinations", to(theirs.GUID)}: 200,
		{"POST", at + "/destinations", to(mine.GUID)}:   422,
		{"DELETE", at, ""}:                        403,
		{"DELETE", shares + "/" + other.GUID, ""}: 403,
		{"PATCH", at + "/relationships/space", `{"data":{"guid":"` + other.GUID + `"}}`}: 403,
		{"DELETE", at + "/destinations/" + w.destination(rt.GUID, mine.GUID), ""}:        403,
		{"PATCH", at + "/destinations", `{"destinations":[]}`}:                           403,
		{"POST", shares, `{"data":[{"guid":"` + w.space.GUID + `"}]}`}:                   403,
		{"GET", "/v3/routes?hosts=both&space_guids=" + other.GUID, ""}:                   200,
		{"GET", "/v3/routes/" + rt.GUID + "/relationships/shared_spaces", ""}:            200,
	} {
		if got := w.as(ann, request[0], request[1], request[2]); got.Code != want {
			t.Errorf("%s %s = %d %s, want %d", request[0], request[1], got.Code, got.Body, want)
		}
	}
	w.want(204, "DELETE", shares+"/"+other.GUID, "", nil)
	if left := must(w.c.Registry.Route(rt.GUID))(t); len(left.Destinations) != 1 || left.Destinations[0].App != mine.GUID {
		t.Errorf("destinations = %+v, want the one of the space that has the route", left.Destinations)
	}
	wantError(t, w.request("DELETE", shares+"/"+other.GUID, ""), "CF-UnprocessableEntity", "Ensure the space exists and the route has been shared")
	wantError(t, w.request("DELETE", shares+"/"+w.space.GUID, ""), "CF-UnprocessableEntity", "cannot be removed from the space that owns them")
	wantError(t, w.request("POST", shares, `{"data":[{"guid":"nonesuch"}]}`), "CF-UnprocessableEntity", "Ensure the space exists")
}

func (w *testServer) destination(route, app string) string {
	w.t.Helper()
	for _, d := range must(w.c.Registry.Route(route))(w.t).Destinations {
		if d.App == app {
			return d.GUID
		}
	}
	w.t.Fatalf("route %s does not lead to %s", route, app)
	return ""
}

// A route that moves to another space stays shared with the previous space until that
// space is deleted.
func TestMoveRoute(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	other := w.createSpace(w.space.Org, "other")
	a := w.createApp("mine")
	var rt v3.Route
	var domains v3.List[v3.Domain]
	w.want(200, "GET", "/v3/domains?names=dew.localhost", "", &domains)
	w.want(201, "POST", "/v3/routes", `{"host":"both","relationships":{"space":{"data":{"guid":"`+w.space.GUID+`"}},"domain":{"data":{"guid":"`+domains.Resources[0].GUID+`"}}}}`, &rt)
	w.want(200, "POST", "/v3/routes/"+rt.GUID+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`"}}]}`, nil)
	move := `{"data":{"guid":"` + other.GUID + `"}}`
	guid := w.user("ann")
	w.grant(guid, auth.OrgUser, w.space.Org)
	w.grant(guid, auth.SpaceDeveloper, w.space.GUID)
	w.grant(guid, auth.SpaceDeveloper, other.GUID)
	if got := w.as(w.login("ann"), "PATCH", "/v3/routes/"+rt.GUID+"/relationships/space", move); got.Code != http.StatusForbidden {
		t.Errorf("a move without the feature flag = %d %s, want 403", got.Code, got.Body)
	}
	w.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	w.want(200, "PATCH", "/v3/routes/"+rt.GUID+"/relationships/space", move, nil)
	now := must(w.c.Registry.Route(rt.GUID))(t)
	if now.Space != other.GUID || len(now.SharedWith) != 1 || now.SharedWith[0] != w.space.GUID || len(now.Destinations) != 1 {
		t.Errorf("route = %+v, want it in the other space, shared with the first, leading to the app", now)
	}
	if err := w.c.Registry.DeleteSpace(w.space.GUID); err != nil {
		t.Fatal(err)
	}
	now = must(w.c.Registry.Route(rt.GUID))(t)
	if len(now.SharedWith) != 0 || len(now.Destinations) != 0 {
		t.Errorf("route = %+v, want nothing of the space that is gone", now)
	}
}
