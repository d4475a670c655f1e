package cli

import (
	"testing"

	"github.com/dewrun/dew/api/v3"
)

func TestRoute(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	d.dew("map-route", "shop", "dew.localhost", "-n", "shop", "--path", "/api").must(t, 0)
	d.routes[0].Relationships = v3.RouteRelationships{Space: v3.To("space-1"), Domain: v3.To("d-1")}
	d.routes[0].Protocol, d.routes[0].Options = "http", map[string]string{"loadbalancing": "round-robin"}
	d.dew("route", "dew.localhost", "-n", "shop", "--path", "api").must(t, 0,
		"route:      shop.dew.localhost/api", "host:       shop", "path:       /api", "protocol:   http", "space:      dev", "option:     loadbalancing=round-robin", "shop   web       8080   http1")
	d.routes[0].Destinations = append(d.routes[0].Destinations, v3.Destination{App: v3.DestinationApp{GUID: "app-of-others"}, Port: 8080})
	d.dew("route", "dew.localhost", "-n", "shop", "--path", "api").must(t, 0, "app-of-others") // the user cannot see the app's name
	d.dew("ro", "dew.localhost", "-n", "shop", "--path", "api", "--json").must(t, 0, `"url": "shop.dew.localhost/api"`, `"shared_with": []`, `"app": "shop"`)
	d.dew("route", "dew.localhost", "-n", "none").must(t, 1, `route "none.dew.localhost" does not exist`, "To list the routes: dew routes")
	d.dew("create-route", "tcp.dew.localhost", "--port", "20001").must(t, 0)
	d.dew("route", "tcp.dew.localhost", "--port", "20001").must(t, 0, "port:     20001", "The route has no destinations. To map it to an app: dew map-route APP DOMAIN")
}

func TestCheckRoute(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-route", "dew.localhost", "-n", "shop").must(t, 0)
	d.dew("check-route", "dew.localhost", "-n", "shop").must(t, 0, "Route shop.dew.localhost exists")
	d.dew("check-route", "dew.localhost", "-n", "none", "--path", "x").must(t, 0, "Route none.dew.localhost/x does not exist")
	d.dew("check-route", "tcp.dew.localhost", "--port", "20001", "--json").must(t, 0, `"exists": false`)
	d.dew("check-route", "dew.lokalhost").must(t, 1, `did you mean "dew.localhost"?`)
}

func TestChangeRoute(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp("STARTED")
	d.accounts.spaces = append(d.accounts.spaces, v3.Space{GUID: "space-2", Name: "test", Relationships: v3.SpaceRelationships{Organization: v3.To("org-1")}})
	d.dew("map-route", "shop", "dew.localhost", "-n", "shop").must(t, 0)
	way := []string{"dew.localhost", "-n", "shop"}
	run := func(verb string, flags ...string) result {
		return d.dew(append(append([]string{verb}, way...), flags...)...)
	}

	run("update-route", "-o", "loadbalancing=round-robin", "-r", "hash_header").must(t, 0, "Updated route shop.dew.localhost")
	d.changed("PATCH /v3/routes/r-1", `{"options":{"hash_header":null,"loadbalancing":"round-robin"}}`)
	run("update-route").must(t, 2, "needs --option or --remove-option")
	run("update-route", "-o", "loadbalancing").must(t, 2, `--option must be OPTION=VALUE, not "loadbalancing"`)
	run("update-route", "-o", "a=b", "-r", "a").must(t, 2, "option a cannot be in both --option and --remove-option")

	d.dew("update-destination", "shop", "dew.localhost", "-n", "shop", "--app-protocol", "http2").must(t, 0, "Route shop.dew.localhost now uses protocol http2 for app shop")
	d.changed("PATCH /v3/routes/r-1/destinations/to-1", `{"protocol":"http2"}`)
	d.dew("update-destination", "shop", "dew.localhost", "-n", "shop").must(t, 2, "needs --app-protocol")
	d.dew("create-route", "dew.localhost", "-n", "other").must(t, 0)
	d.dew("update-destination", "shop", "dew.localhost", "-n", "other", "--app-protocol", "http1").must(t, 1, "route other.dew.localhost is not mapped to app shop", "dew map-route")

	run("share-route", "-s", "test").must(t, 0, "Shared route shop.dew.localhost with space test of org local")
	d.changed("POST /v3/routes/r-1/relationships/shared_spaces", `{"data":[{"guid":"space-2"}]}`)
	run("route").must(t, 0, "shared with:   test")
	run("unshare-route", "-s", "test").must(t, 0, "Stopped sharing route shop.dew.localhost with space test of org local")
	run("unshare-route", "-s", "test").must(t, 0, "Route shop.dew.localhost is not shared with space test of org local")
	run("move-route", "-s", "test", "-o", "local").must(t, 0, "Moved route shop.dew.localhost to space test of org local")
	d.changed("PATCH /v3/routes/r-1/relationships/space", `{"data":{"guid":"space-2"}}`)
	run("move-route").must(t, 0, "Moved route shop.dew.localhost to space dev of org local")
	run("move-route", "-o", "local").must(t, 2, "pass -s SPACE")
	run("move-route", "-s", "tset").must(t, 1, `did you mean "test"?`)
}

func TestPrivateDomains(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.accounts.orgs = append(d.accounts.orgs, v3.Organization{GUID: "org-9", Name: "shop"})
	d.dew("create-private-domain", "local", "local.example.com").must(t, 0, "Created domain local.example.com of org local")
	d.changed("POST /v3/domains", `{"name":"local.example.com","relationships":{"organization":{"data":{"guid":"org-1"}}}}`)
	d.dew("create-domain", "shop", "own.example.com").must(t, 0, "Domain own.example.com already exists")
	d.dew("share-private-domain", "local", "own.example.com").must(t, 0, "Shared domain own.example.com with org local")
	d.changed("POST /v3/domains/d-3/relationships/shared_organizations", `{"data":[{"guid":"org-1"}]}`)
	d.dew("org", "local").must(t, 0, "tcp.dew.localhost, own.example.com")
	d.dew("share-private-domain", "local", "dew.localhost").must(t, 1, "domain dew.localhost is shared by all orgs and not private", "dew domains")
	d.dew("unshare-private-domain", "local", "own.example.com").must(t, 0, "Stopped sharing domain own.example.com with org local")
	d.dew("unshare-private-domain", "local", "own.example.com").must(t, 0, "Domain own.example.com is not shared with org local")
	d.dew("delete-private-domain", "own.example.com").must(t, 2, "-f")
	d.dew("delete-domain", "own.example.com", "-f").must(t, 0, "Deleted domain own.example.com")
	d.dew("delete-private-domain", "none.example.com", "-f").must(t, 0, "Domain none.example.com does not exist")
	d.dew("delete-private-domain", "apps.internal", "-f").must(t, 1, "is shared by all orgs")
}
