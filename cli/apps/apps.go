package apps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// Commands list, show, rename and delete apps.
func Commands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "apps", Alias: "a", Category: "Apps", Usage: "List the apps of the targeted space", Labels: "/v3/apps", Flags: []cli.Flag{command.BoolFlag("no-stats", "Do not show how many instances run"), command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runApps(c.Context, c.Bool("no-stats"), api, out)
			}),
		g.Command(command.Verb{
			Name: "app", Args: "APP", Category: "Apps", Usage: "Show an app's status: instances, memory, sidecars, crashes",
			About: "Examples:\n   dew app shop\n   dew app shop --json | jq '.processes[0].instances'",
			Flags: []cli.Flag{command.BoolFlag("guid", "Print only the guid of the app"), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runApp(c.Context, appOptions{Name: c.Args().First(), GUID: c.Bool("guid")}, api, out)
		}),
		psCommand(g),
		memoryCommand(g),
		openCommand(g),
		g.Command(command.Verb{
			Name: "delete", Alias: "d", Args: "APP", Category: "Apps", Usage: "Delete an app",
			About: "If the app does not exist, the command succeeds.\n\nExample:\n   dew delete shop -f -r",
			Flags: []cli.Flag{
				command.BoolFlag("f", "Do not ask for confirmation"),
				command.BoolFlag("r", "Delete the routes of the app as well"),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runDelete(c.Context, command.DeleteOptions{Name: c.Args().First(), Force: c.Bool("f"), Routes: c.Bool("r")}, api, out)
		}),
		g.Command(command.Verb{Name: "rename", Args: "APP NEW_NAME", Category: "Apps", Usage: "Rename an app"},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runRename(c.Context, c.Args().Get(0), c.Args().Get(1), api, out)
			}),
	}
}

// Row is an app in the list.
type Row struct {
	GUID      string       `json:"guid"`
	Name      string       `json:"name"`
	State     string       `json:"state"`
	Processes []processRow `json:"processes"`
	Routes    []string     `json:"routes"`
}

type processRow struct {
	Type      string `json:"type"`
	Running   int    `json:"running"`
	Instances int    `json:"instances"`
}

func runApps(ctx context.Context, bare bool, api *client.Client, out *console.Console) error {
	rows, err := readApps(ctx, bare, api)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(rows)
	}
	if len(rows) == 0 {
		out.Say("There are no apps yet. To create one: dew push")
		return nil
	}
	status, err := api.Daemon().Status(ctx)
	if err != nil && !command.HiddenFromCaller(err) {
		return err
	}
	table := [][]string{{"name", "state", "processes", "routes"}}
	for _, r := range rows {
		var ps []string
		for _, p := range r.Processes {
			ps = append(ps, fmt.Sprintf("%s:%d/%d", p.Type, p.Running, p.Instances))
		}
		table = append(table, []string{r.Name, strings.ToLower(r.State), strings.Join(ps, ", "), strings.Join(urls(r.Routes, status.Router), ", ")})
	}
	return out.Table(table)
}

// urls are the addresses of routes.
func urls(routes []string, router string) []string {
	var out []string
	for _, r := range routes {
		out = append(out, command.RouteURL(r, router))
	}
	return out
}

// lists has all that the list of apps shows.
type lists struct {
	apps      []v3.App
	processes []v3.Process
	routes    []v3.Route
}

// readLists reads the lists side by side; with bare it leaves out the processes.
func readLists(ctx context.Context, bare bool, api *client.Client) (lists, error) {
	var out lists
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		out.apps, err = api.Apps().List(ctx)
		return err
	})
	g.Go(func() (err error) {
		if !bare {
			out.processes, err = api.Processes().All(ctx)
		}
		return err
	})
	g.Go(func() (err error) {
		out.routes, err = api.Routes().List(ctx)
		return err
	})
	return out, g.Wait()
}

// readApps reads all apps; with bare it leaves out their processes.
func readApps(ctx context.Context, bare bool, api *client.Client) ([]Row, error) {
	all, err := readLists(ctx, bare, api)
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(all.apps))
	byGUID := map[string]*Row{}
	for i, a := range all.apps {
		rows[i] = Row{GUID: a.GUID, Name: a.Name, State: a.State, Processes: []processRow{}, Routes: []string{}}
		byGUID[a.GUID] = &rows[i]
	}
	for _, p := range all.processes {
		r := byGUID[p.Relationships.App.ID()]
		if r == nil {
			continue // created after the list was read
		}
		row := processRow{Type: p.Type, Instances: p.Instances}
		for _, i := range p.EmbeddedInstances {
			if i.State == v3.StateRunning {
				row.Running++
			}
		}
		r.Processes = append(r.Processes, row)
	}
	for _, route := range all.routes {
		for _, d := range route.Destinations {
			if r := byGUID[d.App.GUID]; r != nil && !slices.Contains(r.Routes, route.URL) {
				r.Routes = append(r.Routes, route.URL)
			}
		}
	}
	return rows, nil
}

type appOptions struct {
	Name string
	GUID bool
}

func runApp(ctx context.Context, o appOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if o.GUID {
		fmt.Fprintln(out.Out, a.GUID)
		return nil
	}
	v, err := ReadView(ctx, api, a)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(v)
	}
	v.Print(out)
	return nil
}

// runDelete deletes an app. An app that does not exist is not an error.
func runDelete(ctx context.Context, o command.DeleteOptions, api *client.Client, out *console.Console) error {
	if !o.Force {
		if yes, err := out.Confirm(ctx, "Delete app "+o.Name); err != nil || !yes {
			return err
		}
	}
	a, err := api.Apps().ByName(ctx, o.Name)
	if missing := (*client.NoApp)(nil); errors.As(err, &missing) {
		out.Say("App %s does not exist", o.Name)
		return nil
	}
	if err != nil {
		return err
	}
	var routes []v3.Route
	if o.Routes {
		if routes, err = ownRoutes(ctx, a, api); err != nil {
			return err
		}
	}
	defer out.Wait("Deleting app %s", a.Name).End()
	if err := api.Apps().Delete(ctx, a.GUID); err != nil {
		return err
	}
	for _, r := range routes {
		if err := api.Routes().Delete(ctx, r.GUID); err != nil && !client.NotFound(err) {
			return fmt.Errorf("deleted app %s, but cannot delete its route %s: %w", a.Name, r.URL, err)
		}
	}
	out.Say("Deleted app %s", a.Name)
	return nil
}

// ownRoutes are the routes of an app. A route that other apps share is an error.
func ownRoutes(ctx context.Context, a v3.App, api *client.Client) ([]v3.Route, error) {
	routes, err := api.Routes().OfApp(ctx, a.GUID)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		for _, d := range r.Destinations {
			if d.App.GUID != a.GUID {
				return nil, &console.Failure{
					Status: console.StatusFailed, Err: fmt.Errorf("cannot delete the routes of %s: route %s is mapped to other apps as well", a.Name, r.URL),
					Advice: "Nothing was deleted. To delete the app and keep its routes, leave out -r",
				}
			}
		}
	}
	return routes, nil
}

func runRename(ctx context.Context, name, to string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	if _, err := api.Apps().Update(ctx, a.GUID, v3.UpdateApp{Name: &to}); err != nil {
		return err
	}
	out.Say("Renamed app %s to %s", name, to)
	return nil
}
