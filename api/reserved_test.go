package api

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// New routes with a name of the API are refused with the reason, whatever creates them.
// A stored one keeps its app.
func TestReservedRoutes(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	shared := must(w.c.Registry.DefaultDomain())(t)
	other := must(w.c.Registry.PutDomain(app.Domain{Name: "other.example.com"}))(t)
	below := must(w.c.Registry.PutDomain(app.Domain{Name: "login." + shared.Name, Org: w.space.Org}))(t)
	stored := must(w.c.Registry.PutRoute(app.Route{Space: w.space.GUID, Domain: shared.GUID, Host: "uaa"}))(t)
	w.s.platform.APIDomain = shared.Name
	for _, tt := range []struct {
		domain, more string
		allowed      bool
	}{
		{shared.GUID, `"host":"api",`, false},
		{shared.GUID, `"host":"API",`, false},
		{shared.GUID, `"host":"api","path":"/x",`, false},
		{shared.GUID, `"host":"login",`, false},
		{shared.GUID, `"host":"log-cache",`, false},
		{below.GUID, "", false},
		{below.GUID, `"host":"api",`, true},
		{other.GUID, `"host":"api",`, true},
		{shared.GUID, `"host":"apis",`, true},
		{shared.GUID, `"host":"*",`, true},
	} {
		got := w.request("POST", "/v3/routes", routeBody(w.space.GUID, tt.domain, tt.more))
		if tt.allowed && got.Code != 201 || !tt.allowed && (got.Code != 422 || !strings.Contains(got.Body.String(), "is reserved for the API. Use another host, for example ")) {
			t.Errorf("%s in %s = %d %s", tt.more, tt.domain, got.Code, got.Body)
		}
	}
	apply := func(manifest string) v3.Job {
		return w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", manifest, nil))
	}
	j := apply("applications: [{name: api, routes: [{route: api." + shared.Name + "}]}]")
	if len(j.Errors) != 1 || !strings.Contains(j.Errors[0].Detail, "The host api."+shared.Name+" is reserved for the API") {
		t.Errorf("manifest with a reserved route: %+v", j)
	}
	if j := apply("applications: [{name: accounts, routes: [{route: uaa." + shared.Name + "}]}]"); len(j.Errors) != 0 {
		t.Errorf("manifest with a stored route: %+v", j)
	}
	if rt := must(w.c.Registry.Route(stored.GUID))(t); len(rt.Destinations) != 1 {
		t.Errorf("stored route: %+v", rt)
	}
}
