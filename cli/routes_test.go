package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// wayRoutes handles requests about routes. Destinations with their own port stay
// pending, because the fake daemon restarts nothing.
func (d *fakeDaemon) wayRoutes(handle func(string, func(*http.Request, []byte) any)) {
	decode := func(body []byte, v any) {
		if err := json.Unmarshal(body, v); err != nil {
			d.t.Error(err)
		}
	}
	find := func(r *http.Request) *v3.Route {
		i := slices.IndexFunc(d.routes, func(rt v3.Route) bool { return rt.GUID == r.PathValue("guid") })
		if i < 0 {
			d.t.Errorf("there is no route %s", r.PathValue("guid"))
			return &v3.Route{}
		}
		return &d.routes[i]
	}
	handle("GET /v3/routes", func(r *http.Request, _ []byte) any {
		return listWhere(d.routes, func(rt v3.Route) bool {
			return matchesFilter(r, "hosts", rt.Host) && matchesFilter(r, "paths", rt.Path) && matchesFilter(r, "ports", portOf(rt))
		})
	})
	handle("POST /v3/routes", func(_ *http.Request, body []byte) any {
		var c v3.CreateRoute
		decode(body, &c)
		rt := v3.Route{GUID: fmt.Sprintf("r-%d", len(d.routes)+1), Host: c.Host, Path: c.Path, URL: c.Host + ".dew.localhost" + c.Path}
		if c.Relationships.Domain.ID() == "d-tcp" {
			port := 20099
			if c.Port != nil {
				port = int(*c.Port)
			}
			rt.Port, rt.URL = &port, fmt.Sprintf("tcp.dew.localhost:%d", port)
		}
		d.routes = append(d.routes, rt)
		return answer{201, rt}
	})
	handle("POST /v3/routes/{guid}/destinations", func(r *http.Request, body []byte) any {
		var c v3.ChangeDestinations
		decode(body, &c)
		rt := find(r)
		for _, n := range c.Destinations {
			to := v3.Destination{GUID: fmt.Sprintf("to-%d", len(rt.Destinations)+1), App: v3.DestinationApp{GUID: n.App.GUID, Process: v3.DestinationProcess{Type: "web"}}, Port: 8080, Protocol: "http1"}
			if n.Port != nil {
				to.Port, to.Pending = int(*n.Port), true
			}
			if n.Protocol != "" {
				to.Protocol = n.Protocol
			}
			rt.Destinations = append(rt.Destinations, to)
		}
		return v3.Destinations{Destinations: rt.Destinations}
	})
	handle("DELETE /v3/routes/{guid}/destinations/{destination}", func(r *http.Request, _ []byte) any {
		rt := find(r)
		rt.Destinations = slices.DeleteFunc(rt.Destinations, func(to v3.Destination) bool { return to.GUID == r.PathValue("destination") })
		return answer{204, nil}
	})
	handle("DELETE /v3/spaces/{guid}/routes", func(r *http.Request, _ []byte) any {
		if r.URL.Query().Get("unmapped") != "true" {
			d.t.Error("all routes of the space are to be deleted")
		}
		return job{}
	})
	handle("GET /routing/v1/router_groups", func(*http.Request, []byte) any {
		return []v3.RouterGroup{{GUID: "g-1", Name: "default-tcp", Type: "tcp", ReservablePorts: "20000-20099"}}
	})
	handle("POST /v3/domains", func(*http.Request, []byte) any { return answer{201, v3.Domain{GUID: "d-9"}} })
	handle("DELETE /v3/domains/{guid}", func(*http.Request, []byte) any { return job{} })
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	d.dew("routes").must(t, 0, "There are no routes. To create one: dew map-route APP DOMAIN")
	d.dew("create-route", "dew.localhost", "--hostname", "Shop").must(t, 0, "Created route shop.dew.localhost")
	d.dew("create-route", "dew.localhost", "-n", "shop").must(t, 0, "Route shop.dew.localhost already exists")
	d.dew("create-route", "dew.lokalhost", "-n", "shop").must(t, 1, `domain "dew.lokalhost" does not exist`, `did you mean "dew.localhost"?`)
	d.dew("routes").must(t, 0, "shop.dew.localhost", "no destination")
	d.dew("map-route", "shop", "dew.localhost", "--hostname", "shop").must(t, 0, "Mapped route shop.dew.localhost to app shop")
	d.dew("map-route", "shop", "dew.localhost", "-n", "debug", "--path", "dump/", "--app-port", "9090", "--app-protocol", "http2").
		must(t, 0, "Mapped route debug.dew.localhost/dump to app shop", "Port 9090 is pending. To open it: dew restart shop")
	d.dew("routes").must(t, 0, "debug.dew.localhost/dump", "shop", "web", "9090", "http2", "pending until dew restart shop")
	d.dew("routes", "--json").must(t, 0, `"url": "debug.dew.localhost/dump"`, `"port": 9090`, `"pending": true`)
	d.dew("unmap-route", "shop", "dew.localhost", "-n", "debug", "--path", "/dump", "--app-port", "1").must(t, 0, "Route debug.dew.localhost/dump is not mapped to port 1 of app shop")
	d.dew("unmap-route", "shop", "dew.localhost", "-n", "debug", "--path", "/dump").must(t, 0, "Removed route debug.dew.localhost/dump from app shop")
	d.dew("unmap-route", "shop", "dew.localhost", "-n", "none").must(t, 1, `route "none.dew.localhost" does not exist`)
	if got := len(d.routes[1].Destinations); got != 0 {
		t.Errorf("%d destinations are left", got)
	}
	d.dew("delete-route", "dew.localhost", "-n", "none", "-f").must(t, 0, "Route none.dew.localhost does not exist")
	d.dew("delete-route", "dew.localhost", "-n", "shop", "-f").must(t, 0, "Deleted route shop.dew.localhost")
	runDewWithInput(t.Context(), "n\n", "--run", d.run, "delete-route", "dew.localhost", "-n", "shop").must(t, 0)
	if n := d.count("DELETE /v3/routes/r-1"); n != 1 {
		t.Errorf("the route was deleted %d times", n)
	}
	d.dew("delete-orphaned-routes", "-f").must(t, 0, "Deleted all routes without a destination")
}

func portOf(rt v3.Route) string {
	if rt.Port == nil {
		return ""
	}
	return fmt.Sprint(*rt.Port)
}

func TestTCPRoutes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	d.dew("router-groups").must(t, 0, "default-tcp", "tcp", "20000-20099")
	d.dew("create-shared-domain", "tcp.example.com", "--router-group", "default-tcp").must(t, 0, "Created domain tcp.example.com")
	if got := d.bodies["POST /v3/domains"]; got != `{"name":"tcp.example.com","router_group":{"guid":"g-1"}}` {
		t.Errorf("body = %s", got)
	}
	d.dew("create-shared-domain", "tcp.example.com", "--router-group", "default-tpc").must(t, 1, `router group "default-tpc" does not exist`, `did you mean "default-tcp"?`)
	d.dew("create-route", "tcp.dew.localhost").must(t, 0, "Created route tcp.dew.localhost:20099")
	d.dew("create-route", "tcp.dew.localhost", "--port", "20001").must(t, 0, "Created route tcp.dew.localhost:20001")
	d.dew("create-route", "tcp.dew.localhost", "--port", "20001").must(t, 0, "Route tcp.dew.localhost:20001 already exists")
	d.dew("map-route", "shop", "tcp.dew.localhost", "--port", "20002").must(t, 0, "Mapped route tcp.dew.localhost:20002 to app shop")
	d.routes[len(d.routes)-1].Problem = "cannot listen: the port is taken"
	d.dew("routes").must(t, 0, "tcp.dew.localhost:20002", "cannot listen: the port is taken")
	d.dew("routes", "--json").must(t, 0, `"problem": "cannot listen: the port is taken"`)
	d.dew("unmap-route", "shop", "tcp.dew.localhost", "--port", "20002").must(t, 0, "Removed route tcp.dew.localhost:20002 from app shop")
	d.dew("unmap-route", "shop", "tcp.dew.localhost").must(t, 1, "no --port given")
	d.dew("delete-route", "tcp.dew.localhost", "--port", "20003", "-f").must(t, 0, "Route tcp.dew.localhost:20003 does not exist")
	d.dew("create-route", "dew.localhost", "--port", "20001").must(t, 2, "dew.localhost is not a TCP domain")
	d.dew("create-route", "tcp.dew.localhost", "-n", "x").must(t, 2, "instead of --hostname")
	d.dew("create-route", "tcp.dew.localhost", "-n", "x", "--port", "1").must(t, 2, "--port is for TCP routes")
	d.dew("create-route", "tcp.dew.localhost", "--port", "70000").must(t, 2, "--port must be 1 to 65535, not 70000")
}

func TestRouteArguments(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"map-route", "shop", "dew.localhost", "--app-port", "70000"}, "--app-port must be 1 to 65535, not 70000"},
		{[]string{"map-route", "shop", "dew.localhost", "--app-port", "0"}, "--app-port must be 1 to 65535, not 0"},
		{[]string{"map-route", "shop", "dew.localhost", "--app-protocol", "http3"}, `--app-protocol must be http1 or http2, not "http3"`},
		{[]string{"map-route", "shop"}, "map-route needs APP DOMAIN"},
		{[]string{"delete-route"}, "delete-route needs DOMAIN"},
	} {
		d.dew(c.args...).must(t, 2, c.want)
	}
	d.dew("map-route", "shpo", "dew.localhost", "-n", "x").must(t, 1, `did you mean "shop"?`)
}

func TestSharedDomains(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-shared-domain", "example.com").must(t, 0, "Created domain example.com")
	d.dew("create-shared-domain", "in.example.com", "--internal").must(t, 0, "Created domain in.example.com")
	if got := d.bodies["POST /v3/domains"]; got != `{"name":"in.example.com","internal":true}` {
		t.Errorf("body = %s", got)
	}
	d.dew("delete-shared-domain", "none.example.com", "-f").must(t, 0, "Domain none.example.com does not exist")
	d.dew("delete-shared-domain", "own.example.com", "-f").must(t, 1, "belongs to one org")
	d.dew("delete-shared-domain", "apps.internal", "-f").must(t, 0, "Deleted domain apps.internal")
	if n := d.count("DELETE /v3/domains/d-2"); n != 1 {
		t.Errorf("the domain was deleted %d times", n)
	}
}
