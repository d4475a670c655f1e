package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// An invalid destination gets a 422 response that names the key.
func TestBadDestinations(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	elsewhere := must(w.c.Registry.PutSpace(app.Space{Name: "elsewhere", Org: w.space.Org}))(t)
	domain := must(w.c.Registry.DefaultDomain())(t)
	rt := must(w.c.Registry.PutRoute(app.Route{Space: w.space.GUID, Domain: domain.GUID, Host: "shop"}))(t)
	foreign := must(w.c.Registry.PutRoute(app.Route{Space: elsewhere.GUID, Domain: domain.GUID, Host: "other"}))(t)
	to := func(more string) string { return `{"app":{"guid":"` + a.GUID + `"}` + more + `}` }
	many := make([]string, 101)
	for i := range many {
		many[i] = to(fmt.Sprintf(`,"port":%d`, 10000+i))
	}
	for name, c := range map[string]struct{ route, destinations, key string }{
		"unknown app":      {rt.GUID, `{"app":{"guid":"none"}}`, "destinations[0].app.guid"},
		"no app":           {rt.GUID, to("") + `,{"app":{}}`, "destinations[1].app.guid"},
		"port 0":           {rt.GUID, to(`,"port":0`), "destinations[0].port"},
		"port 70000":       {rt.GUID, to(`,"port":70000`), "destinations[0].port"},
		"port -1":          {rt.GUID, to(`,"port":-1`), "destinations[0].port"},
		"protocol":         {rt.GUID, to(`,"protocol":"http3"`), "destinations[0].protocol"},
		"process type":     {rt.GUID, `{"app":{"guid":"` + a.GUID + `","process":{"type":"a b"}}}`, "destinations[0].process.type"},
		"twice":            {rt.GUID, to("") + "," + to(`,"protocol":"http1"`), "destinations[1].app"},
		"twice with ports": {rt.GUID, to(`,"port":9000`) + "," + to(`,"port":9000,"protocol":"http2"`), "destinations[1].app"},
		"too many":         {rt.GUID, strings.Join(many, ","), "destinations"},
		"weight":           {rt.GUID, to(`,"weight":50`), "destinations[0].weight"},
		"another space":    {foreign.GUID, to(""), "destinations[0].app"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			t.Run(method+" "+name, func(t *testing.T) {
				got := w.request(method, "/v3/routes/"+c.route+"/destinations", `{"destinations":[`+c.destinations+`]}`)
				if got.Code != http.StatusUnprocessableEntity {
					t.Errorf("status = %d, want 422: %s", got.Code, got.Body)
				}
				wantError(t, got, v3.TitleUnprocessable, c.key)
			})
		}
	}
	if ds := must(w.c.Registry.Route(rt.GUID))(t).Destinations; len(ds) != 0 {
		t.Errorf("destinations = %+v, want none", ds)
	}
}

// A destination is shown as pending while an instance does not have its port.
func TestPendingDestinationIsShown(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	domain := must(w.c.Registry.DefaultDomain())(t)
	rt := must(w.c.Registry.PutRoute(app.Route{Space: w.space.GUID, Domain: domain.GUID, Host: "shop", Destinations: []app.Destination{{App: a.GUID}}}))(t)
	w.fake.slots = map[string][]runtime.Status{a.GUID: {{
		Slot: runtime.SlotID{Process: a.GUID}, App: a.GUID, Type: app.Web, Instance: "i", State: runtime.Running, Ports: []int{8080},
	}}}
	path := "/v3/routes/" + rt.GUID
	pending := func() bool {
		t.Helper()
		var one v3.Route
		w.want(200, "GET", path, "", &one)
		if len(one.Destinations) != 1 {
			t.Fatalf("destinations = %+v, want one", one.Destinations)
		}
		return one.Destinations[0].Pending
	}
	set := func(more string) {
		t.Helper()
		w.want(200, "PATCH", path+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`"}`+more+`}]}`, nil)
	}
	if pending() {
		t.Error("the default port is pending")
	}
	set(`,"port":9090,"protocol":"http2"`)
	if !pending() {
		t.Error("a port that no instance has is not pending")
	}
	w.fake.slots[a.GUID][0].Ports = []int{8080, 9090}
	if pending() {
		t.Error("a port that all instances have is pending")
	}
	set(`,"port":9091`)
	w.fake.slots[a.GUID][0].State = runtime.Crashed
	if pending() {
		t.Error("pending though the next start has the port")
	}
}
