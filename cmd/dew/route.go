package main

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
	"github.com/dewrun/dew/cli/console"
)

// wayOptions are the arguments of commands about a route that is there.
type wayOptions struct {
	routeOptions
	Org, Space string   // where else it is to be
	Remove     []string // names of options
}

func optionFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "option", Aliases: []string{"o"}, Usage: "set an option of the route (`OPTION=VALUE`); may be repeated"}
}

// singleRouteCommands are those about one route.
func singleRouteCommands(g *global) []*cli.Command {
	run := func(v verb, fn func(context.Context, wayOptions, where) error) *cli.Command {
		v.category = routesCategory
		return g.commandAt(v, func(c *cli.Context, w where) error {
			rt, err := readRoute(c, strings.HasPrefix(v.args, "APP"))
			if err != nil {
				return err
			}
			return fn(c.Context, wayOptions{routeOptions: rt, Org: c.String("o"), Space: c.String("s"), Remove: c.StringSlice("remove-option")}, w)
		})
	}
	names := hostFlags()[:2] // of routes that have no port
	elsewhere := func(usage string) []cli.Flag {
		return append(slices.Clone(names), &cli.StringFlag{Name: "s", Usage: usage + " (default: the targeted one)"}, orgFlag())
	}
	return []*cli.Command{
		run(verb{name: "route", alias: "ro", args: "DOMAIN", usage: "show a route: where it leads, who has it, its options", about: "Examples:\n   dew route dew.localhost --hostname shop --path /api\n   dew route tcp.dew.localhost --port 20000", flags: append(hostFlags(), jsonFlag())}, runRoute),
		run(verb{name: "check-route", args: "DOMAIN", usage: "tell whether somebody has a route, also where you do not see it", flags: append(hostFlags(), jsonFlag())}, runCheckRoute),
		run(verb{
			name: "update-route", args: "DOMAIN", usage: "change the options of a route", about: "Examples:\n   dew update-route dew.localhost -n shop -o loadbalancing=least-connection\n   dew update-route dew.localhost -n shop -r loadbalancing",
			flags: append(slices.Clone(names),
				optionFlag(),
				&cli.StringSliceFlag{Name: "remove-option", Aliases: []string{"r"}, Usage: "remove an `option`; may be repeated"}),
		}, runUpdateRoute),
		run(verb{
			name: "update-destination", args: "APP DOMAIN", usage: "say what is spoken with an app that a route leads to", about: "Example:\n   dew update-destination shop dew.localhost -n shop --app-protocol http2",
			flags: append(slices.Clone(names), &cli.StringFlag{Name: "app-protocol", Usage: "`http1|http2`"}),
		}, runUpdateDestination),
		run(verb{name: "move-route", args: "DOMAIN", usage: "make a route another space's", about: "Example:\n   dew move-route dew.localhost -n shop -s test", flags: elsewhere("`space` that has it from now on")}, runMoveRoute),
		run(verb{name: "share-route", args: "DOMAIN", usage: "let apps of another space have a route, too", about: "Example:\n   dew share-route dew.localhost -n shop -s test", flags: elsewhere("the other `space`")}, runShareRoute),
		run(verb{name: "unshare-route", args: "DOMAIN", usage: "take that back", flags: elsewhere("the other `space`")}, runUnshareRoute),
	}
}

// wayView is what `dew route` shows.
type wayView struct {
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

func runRoute(ctx context.Context, o wayOptions, w where) error {
	d, rt, err := o.find(ctx, w.ask)
	if err != nil {
		return err
	}
	all, err := readPlaces(ctx, w.ask)
	if err != nil {
		return err
	}
	spaces, err := w.ask.Routes().Shares(ctx, rt.GUID)
	if err != nil {
		return err
	}
	v := wayView{
		routeRow: routeRow{GUID: rt.GUID, URL: rt.URL, Problem: rt.Problem, Destinations: []destinationRow{}},
		Domain:   d.Name, Host: rt.Host, Path: rt.Path, Port: rt.Port, Protocol: rt.Protocol,
		Space: all.space(rt.Relationships.Space.ID()), SharedWith: []string{}, Options: map[string]string{},
	}
	maps.Copy(v.Options, rt.Options)
	for _, guid := range spaces {
		v.SharedWith = append(v.SharedWith, all.space(guid))
	}
	apps, err := appNames(ctx, w.ask, rt)
	if err != nil {
		return err
	}
	for _, to := range rt.Destinations {
		v.Destinations = append(v.Destinations, destinationOf(to, apps))
	}
	if w.out.JSON {
		return w.out.Encode(v)
	}
	return v.print(w.out)
}

func (v wayView) print(out *console.Console) error {
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
		out.Say("It leads nowhere; dew map-route leads it to an app")
		return nil
	}
	fmt.Fprintln(out.Out)
	to := [][]string{{"app", "process", "port", "app protocol", "state"}}
	for _, d := range v.Destinations {
		to = append(to, []string{d.App, d.Process, strconv.Itoa(d.Port), d.Protocol, d.state(v.Problem)})
	}
	return out.Table(to)
}

func runCheckRoute(ctx context.Context, o wayOptions, w where) error {
	d, err := findDomain(ctx, w.ask, o.Domain)
	if err != nil {
		return err
	}
	taken, err := w.ask.Routes().Taken(ctx, d.GUID, client.RouteName{Host: o.Host, Path: o.Path, Port: o.Way})
	if err != nil {
		return fmt.Errorf("cannot check route %s: %w", o.url(), err)
	}
	if w.out.JSON {
		return w.out.Encode(map[string]bool{"exists": taken})
	}
	state := "does not exist"
	if taken {
		state = "exists"
	}
	fmt.Fprintf(w.out.Out, "Route %s %s\n", o.url(), state)
	return nil
}

func runUpdateRoute(ctx context.Context, o wayOptions, w where) error {
	for _, name := range o.Remove {
		if _, twice := o.Options[name]; twice {
			return console.UsageError("option %s is to be set and to be removed", name)
		}
		o.Options[name] = nil
	}
	if len(o.Options) == 0 {
		return console.UsageError("update-route needs --option or --remove-option")
	}
	_, rt, err := o.find(ctx, w.ask)
	if err != nil {
		return err
	}
	if _, err := w.ask.Routes().Update(ctx, rt.GUID, v3.UpdateRoute{Options: o.Options}); err != nil {
		return fmt.Errorf("cannot change route %s: %w", rt.URL, err)
	}
	w.out.Say("Changed route %s", rt.URL)
	return nil
}

// readRouteOptions reads OPTION=VALUE.
func readRouteOptions(texts []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || value == "" {
			return nil, console.UsageError("--option must be OPTION=VALUE, not %q", text)
		}
		out[name] = &value
	}
	return out, nil
}

func runUpdateDestination(ctx context.Context, o wayOptions, w where) error {
	if o.Protocol == "" {
		return console.UsageError("update-destination needs --app-protocol, http1 or http2")
	}
	a, err := findApp(ctx, w.ask, o.App)
	if err != nil {
		return err
	}
	_, rt, err := o.find(ctx, w.ask)
	if err != nil {
		return err
	}
	changed := 0
	for _, to := range rt.Destinations {
		if to.App.GUID != a.GUID {
			continue
		}
		if err := w.ask.Routes().UpdateDestination(ctx, rt.GUID, to.GUID, o.Protocol); err != nil {
			return fmt.Errorf("cannot change where route %s leads: %w", rt.URL, err)
		}
		changed++
	}
	if changed == 0 {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("route %s does not lead to app %s", rt.URL, a.Name), Todo: "dew map-route leads it there"}
	}
	w.out.Say("Route %s speaks %s with app %s", rt.URL, o.Protocol, a.Name)
	return nil
}

// other finds the route, and the other space that the options name.
func (o wayOptions) other(ctx context.Context, w where) (v3.Route, place, error) {
	_, rt, err := o.find(ctx, w.ask)
	if err != nil {
		return rt, place{}, err
	}
	if o.Space == "" {
		p, err := resolve(ctx, w.ask, w.target)
		if err == nil && (o.Org != "" || p.SpaceGUID == "") {
			err = console.UsageError("the other space is not named: give -s SPACE")
		}
		return rt, p, err
	}
	org, s, err := spaceOptions{Name: o.Space, Org: o.Org}.find(ctx, w)
	return rt, placeOf(org, s), err
}

func runMoveRoute(ctx context.Context, o wayOptions, w where) error {
	rt, to, err := o.other(ctx, w)
	if err != nil {
		return err
	}
	if err := w.ask.Routes().Move(ctx, rt.GUID, to.SpaceGUID); err != nil {
		return fmt.Errorf("cannot move route %s: %w", rt.URL, err)
	}
	w.out.Say("Route %s belongs to %s now", rt.URL, to)
	return nil
}

func runShareRoute(ctx context.Context, o wayOptions, w where) error {
	rt, to, err := o.other(ctx, w)
	if err != nil {
		return err
	}
	if err := w.ask.Routes().Share(ctx, rt.GUID, to.SpaceGUID); err != nil {
		return fmt.Errorf("cannot share route %s: %w", rt.URL, err)
	}
	w.out.Say("Apps of %s may have route %s", to, rt.URL)
	return nil
}

func runUnshareRoute(ctx context.Context, o wayOptions, w where) error {
	rt, to, err := o.other(ctx, w)
	if err != nil {
		return err
	}
	spaces, err := w.ask.Routes().Shares(ctx, rt.GUID)
	if err != nil {
		return err
	}
	if !slices.Contains(spaces, to.SpaceGUID) {
		w.out.Say("Route %s is not shared with %s", rt.URL, to)
		return nil
	}
	if err := w.ask.Routes().Unshare(ctx, rt.GUID, to.SpaceGUID); err != nil {
		return fmt.Errorf("cannot unshare route %s: %w", rt.URL, err)
	}
	w.out.Say("Apps of %s may not have route %s any more", to, rt.URL)
	return nil
}
