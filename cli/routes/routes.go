package routes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const routesCategory = "Routes and domains"

// HostFlags are the flags that identify a route in its domain.
func HostFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "hostname", Aliases: []string{"n"}, Usage: "Route `host` before the domain; * matches all hosts that have no route of their own"},
		&cli.StringFlag{Name: "path", Usage: "Route `path`, such as /api: the route receives requests for it and for all paths below it"},
		&cli.IntFlag{Name: "port", Usage: "Route `port`, only for TCP routes", DefaultText: "none"},
	}
}

// appPortFlag is --app-port, with the text of its default.
func appPortFlag(byDefault string) cli.Flag {
	return &cli.IntFlag{Name: "app-port", Usage: "Destination `port` that the app or one of its sidecars listens on", DefaultText: byDefault}
}

// RouteOptions are the arguments of the commands for one route.
type RouteOptions struct {
	App       string
	Domain    string
	Host      string
	Path      string
	RoutePort int    // port of a TCP route (0: not given)
	Port      int    // port of the app (0: not given)
	Protocol  string // protocol of the destination
	Force     bool
	Options   map[string]*v3.RouteOption // of a new route
}

// Commands are the commands that create, map and delete routes and shared domains.
func Commands(g *command.Set) []*cli.Command {
	type action func(context.Context, RouteOptions, *client.Client, *console.Console) error
	about := func(v command.Verb, fn action) *cli.Command {
		v.Category = routesCategory
		return g.Command(v, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o, err := ReadRoute(c, strings.HasPrefix(v.Args, "APP"))
			if err != nil {
				return err
			}
			return fn(c.Context, o, api, out)
		})
	}
	protocol := &cli.StringFlag{Name: "app-protocol", Usage: "Protocol of the destination: `http1|http2`"}
	force := command.BoolFlag("f", "Do not ask for confirmation")
	return []*cli.Command{
		g.CommandWithEnv(command.Verb{
			Name: "routes", Alias: "r", Labels: "/v3/routes", Category: routesCategory, Usage: "List the routes of the targeted space and their destinations",
			About: "A destination is pending while an instance runs that was started without its port. Until you run dew restart, requests reach the instance as before.",
			Flags: []cli.Flag{command.BoolFlag("org-level", "List the routes of all spaces of the org"), command.JSONFlag()},
		}, func(c *cli.Context, w command.Env) error { return runRoutes(c.Context, c.Bool("org-level"), w) }),
		about(command.Verb{
			Name: "create-route", Args: "DOMAIN", Usage: "Create a route without a destination",
			About: "If the route already exists, the command succeeds. In a TCP domain, a route without --port gets a free port.\n\n" +
				"Examples:\n   dew create-route dew.localhost --hostname shop --path /api\n   dew create-route tcp.dew.localhost --port 20000", Flags: append(HostFlags(), optionFlag()),
		}, runCreateRoute),
		about(command.Verb{
			Name: "map-route", Args: "APP DOMAIN", Usage: "Map a route to an app",
			About: "dew creates the route if it does not exist. A new --app-port opens at the next dew restart of the app. Until then the destination is pending.\n\n" +
				"Examples:\n   dew map-route shop dew.localhost --hostname buy\n   dew map-route shop dew.localhost --hostname shop-debug --app-port 9090\n   dew map-route shop tcp.dew.localhost --port 20000",
			Flags: append(HostFlags(), appPortFlag("the port of the app"), protocol, optionFlag()),
		}, runMapRoute),
		about(command.Verb{
			Name: "unmap-route", Args: "APP DOMAIN", Usage: "Remove a route from an app",
			About: "The route itself is not deleted. With --app-port, dew removes only the destination with that port.", Flags: append(HostFlags(), appPortFlag("all ports")),
		}, runUnmapRoute),
		about(command.Verb{
			Name: "delete-route", Args: "DOMAIN", Usage: "Delete a route", About: "If the route does not exist, the command succeeds.", Flags: append(HostFlags(), force),
		}, runDeleteRoute),
		about(command.Verb{Name: "delete-orphaned-routes", Usage: "Delete the routes of the targeted space that have no destination", Flags: []cli.Flag{force}}, runDeleteOrphaned),
		g.Command(command.Verb{
			Name: "create-shared-domain", Args: "NAME", Category: routesCategory, Usage: "Create a shared domain, which all orgs can use",
			About: "Example:\n   dew create-shared-domain tcp.dew.localhost --router-group default-tcp",
			Flags: []cli.Flag{
				command.BoolFlag("internal", "Make the domain internal: only apps can reach its routes"),
				&cli.StringFlag{Name: "router-group", Usage: "Create a TCP domain, whose routes get ports from the router group with this `name`"},
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runCreateDomain(c.Context, domainOptions{c.Args().First(), c.Bool("internal"), c.String("router-group")}, api, out)
		}),
		g.Command(command.Verb{
			Name: "router-groups", Category: routesCategory, Usage: "List router groups, which provide the ports of TCP routes", Flags: []cli.Flag{command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runRouterGroups(c.Context, api, out)
		}),
		about(command.Verb{
			Name: "delete-shared-domain", Args: "DOMAIN", Usage: "Delete a shared domain with all its routes", About: "If the domain does not exist, the command succeeds.", Flags: []cli.Flag{force},
		}, runDeleteDomain),
	}
}

// ReadRoute reads the arguments and flags of a command for one route.
func ReadRoute(c *cli.Context, app bool) (RouteOptions, error) {
	o := RouteOptions{
		Domain: c.Args().First(), Host: strings.ToLower(c.String("hostname")), Path: c.String("path"),
		RoutePort: c.Int("port"), Port: c.Int("app-port"), Protocol: c.String("app-protocol"), Force: c.Bool("f"),
	}
	if app {
		o.App, o.Domain = c.Args().First(), c.Args().Get(1)
	}
	if o.Path = strings.TrimRight(o.Path, "/"); o.Path != "" && !strings.HasPrefix(o.Path, "/") {
		o.Path = "/" + o.Path
	}
	if c.IsSet("app-port") && (o.Port < 1 || o.Port > 65535) {
		return o, console.UsageError("--app-port must be 1 to 65535, not %d", o.Port)
	}
	if c.IsSet("port") && (o.RoutePort < 1 || o.RoutePort > 65535) {
		return o, console.UsageError("--port must be 1 to 65535, not %d", o.RoutePort)
	}
	if o.RoutePort != 0 && (o.Host != "" || o.Path != "") {
		return o, console.UsageError("--port is for TCP routes and cannot be used with --hostname or --path")
	}
	var err error
	if o.Options, err = readRouteOptions(c.StringSlice("option")); err != nil {
		return o, err
	}
	if p := o.Protocol; p != "" && p != "http1" && p != "http2" {
		return o, console.UsageError("--app-protocol must be http1 or http2, not %q", p)
	}
	return o, nil
}

// URL is the address of the route, without a scheme.
func (o RouteOptions) URL() string {
	if o.RoutePort != 0 {
		return o.Domain + ":" + strconv.Itoa(o.RoutePort)
	}
	if o.Host == "" {
		return o.Domain + o.Path
	}
	return o.Host + "." + o.Domain + o.Path
}

// routeRow is a route in the list.
type routeRow struct {
	GUID         string           `json:"guid"`
	URL          string           `json:"url"`
	Problem      string           `json:"problem,omitempty"`
	Destinations []destinationRow `json:"destinations"`
}

type destinationRow struct {
	GUID     string `json:"guid"`
	App      string `json:"app"`
	Process  string `json:"process"`
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
	Pending  bool   `json:"pending"`
}

// state is the state of the destination: a problem of the route, pending, or empty.
func (r destinationRow) state(problem string) string {
	switch {
	case problem != "":
		return problem
	case r.Pending:
		return "pending until dew restart " + r.App
	}
	return ""
}

// destinationOf is the row of a destination, with the name of its app, or the guid if
// the user cannot see the app.
func destinationOf(d v3.Destination, names map[string]string) destinationRow {
	return destinationRow{GUID: d.GUID, App: cmp.Or(names[d.App.GUID], d.App.GUID), Process: d.App.Process.Type, Port: d.Port, Protocol: d.Protocol, Pending: d.Pending}
}

// appNames are the names of the apps that routes are mapped to, by guid. The apps can be
// in other spaces.
func appNames(ctx context.Context, api *client.Client, routes ...v3.Route) (map[string]string, error) {
	var guids []string
	for _, rt := range routes {
		for _, d := range rt.Destinations {
			guids = append(guids, d.App.GUID)
		}
	}
	slices.Sort(guids)
	apps, err := api.Apps().ByGUID(ctx, slices.Compact(guids)...)
	names := map[string]string{}
	for _, a := range apps {
		names[a.GUID] = a.Name
	}
	return names, err
}

// routesOf are the routes of the space, or of all spaces of the org.
func routesOf(ctx context.Context, orgLevel bool, w command.Env) ([]v3.Route, error) {
	if !orgLevel {
		return w.Client.Routes().List(ctx)
	}
	org, err := command.FindOrg(ctx, w, "")
	if err != nil {
		return nil, err
	}
	return w.Client.Routes().InOrg(ctx, org.GUID)
}

func runRoutes(ctx context.Context, orgLevel bool, w command.Env) error {
	routes, err := routesOf(ctx, orgLevel, w)
	if err != nil {
		return err
	}
	names, err := appNames(ctx, w.Client, routes...)
	if err != nil {
		return err
	}
	rows, table := []routeRow{}, [][]string{{"route", "app", "process", "app port", "protocol", "state"}}
	for _, rt := range routes {
		row := routeRow{GUID: rt.GUID, URL: rt.URL, Problem: rt.Problem, Destinations: []destinationRow{}}
		if len(rt.Destinations) == 0 {
			table = append(table, []string{rt.URL, "", "", "", "", "no destination"})
		}
		for i, d := range rt.Destinations {
			r := destinationOf(d, names)
			row.Destinations = append(row.Destinations, r)
			shown := rt.URL
			if i > 0 {
				shown = ""
			}
			table = append(table, []string{shown, r.App, r.Process, strconv.Itoa(r.Port), r.Protocol, r.state(rt.Problem)})
		}
		rows = append(rows, row)
	}
	return console.List{Rows: rows, Table: table, Empty: "There are no routes. To create one: dew map-route APP DOMAIN"}.Show(w.Out)
}

// find finds the domain and the route that the options name.
func (o RouteOptions) find(ctx context.Context, api *client.Client) (v3.Domain, v3.Route, error) {
	d, err := command.FindDomain(ctx, api, o.Domain)
	if err != nil {
		return d, v3.Route{}, err
	}
	if !isTCP(d) {
		if o.RoutePort != 0 {
			return v3.Domain{}, v3.Route{}, console.UsageError("--port is for TCP domains, and %s is not a TCP domain", d.Name)
		}
		rt, err := api.Routes().At(ctx, d, o.Host, o.Path)
		return d, rt, err
	}
	if o.Host != "" || o.Path != "" {
		return v3.Domain{}, v3.Route{}, console.UsageError("%s is a TCP domain: use --port instead of --hostname and --path", d.Name)
	}
	if o.RoutePort == 0 {
		return d, v3.Route{}, &client.Missing{Kind: "route", Name: d.Name + " (no --port given)"}
	}
	rt, err := api.Routes().AtPort(ctx, d, o.RoutePort)
	return d, rt, err
}

// isTCP reports whether a domain is for TCP routes, which have ports instead of hosts.
func isTCP(d v3.Domain) bool { return slices.Contains(d.SupportedProtocols, "tcp") }

// create creates the route that the options name.
func (o RouteOptions) create(ctx context.Context, api *client.Client, d v3.Domain) (v3.Route, error) {
	if isTCP(d) {
		return api.Routes().CreateTCP(ctx, d.GUID, o.RoutePort)
	}
	return api.Routes().Create(ctx, d.GUID, v3.CreateRoute{Host: o.Host, Path: o.Path, Options: o.Options})
}

func runCreateRoute(ctx context.Context, o RouteOptions, api *client.Client, out *console.Console) error {
	d, rt, err := o.find(ctx, api)
	if err == nil {
		out.Say("Route %s already exists", rt.URL)
		return nil
	}
	if !command.IsMissing(err) || d.GUID == "" {
		return err
	}
	if rt, err = o.create(ctx, api, d); err != nil {
		return fmt.Errorf("cannot create route %s: %w", o.URL(), err)
	}
	out.Say("Created route %s. To map it to an app: dew map-route APP DOMAIN", rt.URL)
	return nil
}

func runMapRoute(ctx context.Context, o RouteOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	d, rt, err := o.find(ctx, api)
	switch {
	case command.IsMissing(err) && d.GUID != "":
		rt, err = o.create(ctx, api, d)
	case err == nil && len(o.Options) > 0:
		_, err = api.Routes().Update(ctx, rt.GUID, v3.UpdateRoute{Options: o.Options})
	}
	if err != nil {
		return fmt.Errorf("cannot map route %s: %w", o.URL(), err)
	}
	to := v3.NewDestination{App: v3.NewDestinationApp{GUID: a.GUID}, Protocol: o.Protocol}
	if o.Port != 0 {
		port := v3.Int(o.Port)
		to.Port = &port
	}
	ds, err := api.Routes().AddDestination(ctx, rt.GUID, to)
	if err != nil {
		return fmt.Errorf("cannot map route %s: %w", o.URL(), err)
	}
	status, err := api.Daemon().Status(ctx)
	if err != nil && !command.HiddenFromCaller(err) {
		return err
	}
	out.Say("Mapped route %s to app %s: %s", rt.URL, a.Name, command.RouteURL(rt.URL, status.Router))
	for _, d := range ds.Destinations {
		if d.App.GUID == a.GUID && d.Pending {
			out.Say("Port %d is pending. To open it: dew restart %s", d.Port, a.Name)
		}
	}
	return nil
}

func runUnmapRoute(ctx context.Context, o RouteOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	_, rt, err := o.find(ctx, api)
	if err != nil {
		return fmt.Errorf("cannot unmap route %s: %w", o.URL(), err)
	}
	removed := 0
	for _, d := range rt.Destinations {
		if d.App.GUID != a.GUID || o.Port != 0 && d.Port != o.Port {
			continue
		}
		if err := api.Routes().RemoveDestination(ctx, rt.GUID, d.GUID); err != nil {
			return fmt.Errorf("cannot unmap route %s: %w", rt.URL, err)
		}
		removed++
	}
	destination := "app " + a.Name
	if o.Port != 0 {
		destination = fmt.Sprintf("port %d of app %s", o.Port, a.Name)
	}
	if removed == 0 {
		out.Say("Route %s is not mapped to %s", rt.URL, destination)
		return nil
	}
	out.Say("Removed route %s from %s", rt.URL, destination)
	return nil
}

// runDeleteRoute deletes a route. It succeeds if the route does not exist.
func runDeleteRoute(ctx context.Context, o RouteOptions, api *client.Client, out *console.Console) error {
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Delete route "+o.URL()); err != nil || !yes {
			return err
		}
	}
	d, rt, err := o.find(ctx, api)
	if command.IsMissing(err) && d.GUID != "" {
		out.Say("Route %s does not exist", o.URL())
		return nil
	}
	if err != nil {
		return err
	}
	defer out.Wait("Deleting route %s", rt.URL).End()
	if err := api.Routes().Delete(ctx, rt.GUID); err != nil {
		return fmt.Errorf("cannot delete route %s: %w", rt.URL, err)
	}
	out.Say("Deleted route %s", rt.URL)
	return nil
}

func runDeleteOrphaned(ctx context.Context, o RouteOptions, api *client.Client, out *console.Console) error {
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Delete all routes of the space that have no destination"); err != nil || !yes {
			return err
		}
	}
	defer out.Wait("Deleting routes").End()
	if err := api.Routes().DeleteUnmapped(ctx); err != nil {
		return fmt.Errorf("cannot delete routes: %w", err)
	}
	out.Say("Deleted all routes without a destination")
	return nil
}

// domainOptions are the arguments of create-shared-domain.
type domainOptions struct {
	Name     string
	Internal bool
	Group    string // name of the router group; empty: no TCP domain
}

func runCreateDomain(ctx context.Context, o domainOptions, api *client.Client, out *console.Console) error {
	d := v3.CreateDomain{Name: o.Name}
	if o.Internal {
		d.Internal = &o.Internal
	}
	if o.Group != "" {
		g, err := findRouterGroup(ctx, api, o.Group)
		if err != nil {
			return err
		}
		d.RouterGroup = &v3.GUID{GUID: g.GUID}
	}
	if _, err := api.Routes().CreateDomain(ctx, d); err != nil {
		return fmt.Errorf("cannot create domain %s: %w", o.Name, err)
	}
	out.Say("Created domain %s", o.Name)
	return nil
}

// findRouterGroup finds a router group by name. If there is none, the error suggests the
// nearest name.
func findRouterGroup(ctx context.Context, api *client.Client, name string) (v3.RouterGroup, error) {
	all, err := api.Routes().RouterGroups(ctx)
	if err != nil {
		return v3.RouterGroup{}, err
	}
	for _, g := range all {
		if g.Name == name {
			return g, nil
		}
	}
	return v3.RouterGroup{}, command.SuggestNearest(&client.Missing{Kind: "router group", Name: name}, name, all, func(g v3.RouterGroup) string { return g.Name })
}

func runRouterGroups(ctx context.Context, api *client.Client, out *console.Console) error {
	all, err := api.Routes().RouterGroups(ctx)
	if err != nil {
		return err
	}
	table := [][]string{{"name", "type", "ports"}}
	for _, g := range all {
		table = append(table, []string{g.Name, g.Type, g.ReservablePorts})
	}
	return console.List{Rows: all, Table: table, Empty: "There are no router groups, because dewd was started without --tcp-ports"}.Show(out)
}

// runDeleteDomain deletes a shared domain. It succeeds if the domain does not exist.
func runDeleteDomain(ctx context.Context, o RouteOptions, api *client.Client, out *console.Console) error {
	return removeDomain(ctx, command.DeleteOptions{Name: o.Domain, Force: o.Force}, func(d v3.Domain) error {
		if d.Relationships.Organization.ID() == "" {
			return nil
		}
		return &console.Failure{Status: console.StatusFailed, Err: errors.New("domain " + d.Name + " belongs to one org and is not shared"), Advice: "Use dew delete-private-domain for private domains"}
	}, command.Env{Client: api, Out: out})
}
