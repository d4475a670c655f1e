package routes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// singleRouteOptions are the arguments of the commands for an existing route.
type singleRouteOptions struct {
	RouteOptions
	Org, Space string   // target space and its org
	Remove     []string // names of the options to remove
}

func optionFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "option", Aliases: []string{"o"}, Usage: "Set an option of the route (`OPTION=VALUE`); can be repeated"}
}

// SingleRouteCommands are the commands for an existing route.
func SingleRouteCommands(g *command.Set) []*cli.Command {
	run := func(v command.Verb, fn func(context.Context, singleRouteOptions, command.Env) error) *cli.Command {
		v.Category = routesCategory
		return g.CommandWithEnv(v, func(c *cli.Context, w command.Env) error {
			rt, err := ReadRoute(c, strings.HasPrefix(v.Args, "APP"))
			if err != nil {
				return err
			}
			return fn(c.Context, singleRouteOptions{RouteOptions: rt, Org: c.String("o"), Space: c.String("s"), Remove: c.StringSlice("remove-option")}, w)
		})
	}
	names := HostFlags()[:2] // for HTTP routes, which have no port
	target := func() []cli.Flag {
		return append(slices.Clone(names), &cli.StringFlag{Name: "s", Usage: "Target `space` (default: the targeted space)"}, command.OrgFlag())
	}
	return []*cli.Command{
		run(command.Verb{Name: "route", Alias: "ro", Args: "DOMAIN", Usage: "Show a route with its destinations, spaces and options", About: "Examples:\n   dew route dew.localhost --hostname shop --path /api\n   dew route tcp.dew.localhost --port 20000", Flags: append(HostFlags(), command.JSONFlag())}, runRoute),
		run(command.Verb{Name: "check-route", Args: "DOMAIN", Usage: "Check whether a route exists, even in spaces you cannot see", Flags: append(HostFlags(), command.JSONFlag())}, runCheckRoute),
		run(command.Verb{
			Name: "update-route", Args: "DOMAIN", Usage: "Change the options of a route", About: "Examples:\n   dew update-route dew.localhost -n shop -o loadbalancing=least-connection\n   dew update-route dew.localhost -n shop -o loadbalancing=hash -o hash_header=X-User-ID\n   dew update-route dew.localhost -n shop -r loadbalancing",
			Flags: append(slices.Clone(names),
				optionFlag(),
				&cli.StringSliceFlag{Name: "remove-option", Aliases: []string{"r"}, Usage: "Remove this `option` of the route; can be repeated"}),
		}, runUpdateRoute),
		run(command.Verb{
			Name: "update-destination", Args: "APP DOMAIN", Usage: "Set the protocol (http1, http2) of a route destination", About: "Example:\n   dew update-destination shop dew.localhost -n shop --app-protocol http2",
			Flags: append(slices.Clone(names), &cli.StringFlag{Name: "app-protocol", Usage: "Protocol of the destination: `http1|http2` (required)"}),
		}, runUpdateDestination),
		run(command.Verb{Name: "move-route", Args: "DOMAIN", Usage: "Move a route to another space", About: "Example:\n   dew move-route dew.localhost -n shop -s test", Flags: target()}, runMoveRoute),
		run(command.Verb{Name: "share-route", Args: "DOMAIN", Usage: "Share a route with another space", About: "Example:\n   dew share-route dew.localhost -n shop -s test", Flags: target()}, runShareRoute),
		run(command.Verb{Name: "unshare-route", Args: "DOMAIN", Usage: "Stop sharing a route with a space", Flags: target()}, runUnshareRoute),
	}
}

// singleRouteView is the output of `dew route`.
type singleRouteView struct {
	routeRow
	Domain     string            `json:"domain"`
	Host       string            `json:"host"`
	Path       string            `json:"path"`
	Port       *int              `json:"port,omitempty"`
	Protocol   string            `json:"protocol"`
	Space      string            `json:"space"`
	SharedWith []string          `json:"shared_with"`
	Options    map[string]string `json:"options"`
}

func runRoute(ctx context.Context, o singleRouteOptions, w command.Env) error {
	d, rt, err := o.find(ctx, w.Client)
	if err != nil {
		return err
	}
	all, err := command.ReadPlaces(ctx, w.Client)
	if err != nil {
		return err
	}
	spaces, err := w.Client.Routes().Shares(ctx, rt.GUID)
	if err != nil {
		return err
	}
	v := singleRouteView{
		routeRow: routeRow{GUID: rt.GUID, URL: rt.URL, Problem: rt.Problem, Destinations: []destinationRow{}},
		Domain:   d.Name, Host: rt.Host, Path: rt.Path, Port: rt.Port, Protocol: rt.Protocol,
		Space: all.SpaceName(rt.Relationships.Space.ID()), SharedWith: []string{}, Options: map[string]string{},
	}
	maps.Copy(v.Options, rt.Options)
	for _, guid := range spaces {
		v.SharedWith = append(v.SharedWith, all.SpaceName(guid))
	}
	apps, err := appNames(ctx, w.Client, rt)
	if err != nil {
		return err
	}
	for _, to := range rt.Destinations {
		v.Destinations = append(v.Destinations, destinationOf(to, apps))
	}
	if w.Out.JSON {
		return w.Out.Encode(v)
	}
	return v.print(w.Out)
}

func (v singleRouteView) print(out *console.Console) error {
	port := ""
	if v.Port != nil {
		port = strconv.Itoa(*v.Port)
	}
	facts := [][]string{
		{"route:", v.URL},
		{"domain:", v.Domain},
		{"host:", v.Host},
		{"path:", v.Path},
		{"port:", port},
		{"protocol:", v.Protocol},
		{"space:", v.Space},
		{"shared with:", strings.Join(v.SharedWith, ", ")},
		{"problem:", v.Problem},
	}
	for _, name := range slices.Sorted(maps.Keys(v.Options)) {
		facts = append(facts, []string{"option:", name + "=" + v.Options[name]})
	}
	if err := out.Facts(facts); err != nil {
		return err
	}
	if len(v.Destinations) == 0 {
		out.Say("The route has no destinations. To map it to an app: dew map-route APP DOMAIN")
		return nil
	}
	fmt.Fprintln(out.Out)
	to := [][]string{{"app", "process", "port", "app protocol", "state"}}
	for _, d := range v.Destinations {
		to = append(to, []string{d.App, d.Process, strconv.Itoa(d.Port), d.Protocol, d.state(v.Problem)})
	}
	return out.Table(to)
}

func runCheckRoute(ctx context.Context, o singleRouteOptions, w command.Env) error {
	d, err := command.FindDomain(ctx, w.Client, o.Domain)
	if err != nil {
		return err
	}
	taken, err := w.Client.Routes().Taken(ctx, d.GUID, client.RouteName{Host: o.Host, Path: o.Path, Port: o.RoutePort})
	if err != nil {
		return fmt.Errorf("cannot check route %s: %w", o.URL(), err)
	}
	if w.Out.JSON {
		return w.Out.Encode(map[string]bool{"exists": taken})
	}
	state := "does not exist"
	if taken {
		state = "exists"
	}
	fmt.Fprintf(w.Out.Out, "Route %s %s\n", o.URL(), state)
	return nil
}

func runUpdateRoute(ctx context.Context, o singleRouteOptions, w command.Env) error {
	for _, name := range o.Remove {
		if _, twice := o.Options[name]; twice {
			return console.UsageError("option %s cannot be in both --option and --remove-option", name)
		}
		o.Options[name] = nil
	}
	if len(o.Options) == 0 {
		return console.UsageError("update-route needs --option or --remove-option")
	}
	_, rt, err := o.find(ctx, w.Client)
	if err != nil {
		return err
	}
	if _, err := w.Client.Routes().Update(ctx, rt.GUID, v3.UpdateRoute{Options: o.Options}); err != nil {
		return fmt.Errorf("cannot update route %s: %w", rt.URL, err)
	}
	w.Out.Say("Updated route %s", rt.URL)
	return nil
}

// readRouteOptions reads OPTION=VALUE.
func readRouteOptions(texts []string) (map[string]*v3.RouteOption, error) {
	out := map[string]*v3.RouteOption{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || value == "" {
			return nil, console.UsageError("--option must be OPTION=VALUE, not %q", text)
		}
		option := v3.RouteOption(value)
		out[name] = &option
	}
	return out, nil
}

func runUpdateDestination(ctx context.Context, o singleRouteOptions, w command.Env) error {
	if o.Protocol == "" {
		return console.UsageError("update-destination needs --app-protocol, http1 or http2")
	}
	a, err := command.FindApp(ctx, w.Client, o.App)
	if err != nil {
		return err
	}
	_, rt, err := o.find(ctx, w.Client)
	if err != nil {
		return err
	}
	changed := 0
	for _, to := range rt.Destinations {
		if to.App.GUID != a.GUID {
			continue
		}
		if err := w.Client.Routes().UpdateDestination(ctx, rt.GUID, to.GUID, o.Protocol); err != nil {
			return fmt.Errorf("cannot update the destination of route %s: %w", rt.URL, err)
		}
		changed++
	}
	if changed == 0 {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("route %s is not mapped to app %s", rt.URL, a.Name), Advice: "To map it: dew map-route APP DOMAIN"}
	}
	w.Out.Say("Route %s now uses protocol %s for app %s", rt.URL, o.Protocol, a.Name)
	return nil
}

// other finds the route and the target space that the options name.
func (o singleRouteOptions) other(ctx context.Context, w command.Env) (v3.Route, command.Target, error) {
	_, rt, err := o.find(ctx, w.Client)
	if err != nil {
		return rt, command.Target{}, err
	}
	if o.Space == "" {
		p, err := command.ResolveTarget(ctx, w.Client, w.Target)
		if err == nil && (o.Org != "" || p.SpaceGUID == "") {
			err = console.UsageError("no target space given: pass -s SPACE")
		}
		return rt, p, err
	}
	org, s, err := command.SpaceOptions{Name: o.Space, Org: o.Org}.Find(ctx, w)
	return rt, command.TargetOf(org, s), err
}

func runMoveRoute(ctx context.Context, o singleRouteOptions, w command.Env) error {
	rt, to, err := o.other(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Routes().Move(ctx, rt.GUID, to.SpaceGUID); err != nil {
		return fmt.Errorf("cannot move route %s to %s: %w", rt.URL, to, err)
	}
	w.Out.Say("Moved route %s to %s", rt.URL, to)
	return nil
}

func runShareRoute(ctx context.Context, o singleRouteOptions, w command.Env) error {
	rt, to, err := o.other(ctx, w)
	if err != nil {
		return err
	}
	if err := w.Client.Routes().Share(ctx, rt.GUID, to.SpaceGUID); err != nil {
		return fmt.Errorf("cannot share route %s with %s: %w", rt.URL, to, err)
	}
	w.Out.Say("Shared route %s with %s", rt.URL, to)
	return nil
}

func runUnshareRoute(ctx context.Context, o singleRouteOptions, w command.Env) error {
	rt, to, err := o.other(ctx, w)
	if err != nil {
		return err
	}
	spaces, err := w.Client.Routes().Shares(ctx, rt.GUID)
	if err != nil {
		return err
	}
	if !slices.Contains(spaces, to.SpaceGUID) {
		w.Out.Say("Route %s is not shared with %s", rt.URL, to)
		return nil
	}
	if err := w.Client.Routes().Unshare(ctx, rt.GUID, to.SpaceGUID); err != nil {
		return fmt.Errorf("cannot stop sharing route %s with %s: %w", rt.URL, to, err)
	}
	w.Out.Say("Stopped sharing route %s with %s", rt.URL, to)
	return nil
}
