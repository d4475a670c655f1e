package apps

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const categoryFlags = "Feature flags"

// CheckCommands show and set health checks and feature flags.
func CheckCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "get-health-check", Args: "APP", Category: "Apps", Usage: "Show the health checks of an app", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runGetCheck(c.Context, c.Args().First(), func(p v3.Process) v3.HealthCheck { return p.HealthCheck }, api, out)
			}),
		g.Command(command.Verb{Name: "get-readiness-health-check", Args: "APP", Category: "Apps", Usage: "Show the readiness health checks of an app", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runGetCheck(c.Context, c.Args().First(), func(p v3.Process) v3.HealthCheck { return p.ReadinessCheck }, api, out)
			}),
		g.Command(command.Verb{
			Name: "set-health-check", Args: "APP TYPE", Category: "Apps", Usage: "Set the health check of a process: process, port or http",
			About: "The change applies from the next start of the process on.\n\nExamples:\n   dew set-health-check worker process\n   dew set-health-check shop http --endpoint /health",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "endpoint", Usage: "HTTP `path` of the http health check (default: /)"},
				&cli.IntFlag{Name: "invocation-timeout", DefaultText: "1", Usage: "Timeout of one health check in `seconds`"},
				&cli.StringFlag{Name: "process", Value: "web", Usage: "Process `type`"},
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runSetCheck(c.Context, checkOptions{
				App: c.Args().Get(0), Type: c.Args().Get(1), Process: c.String("process"), Endpoint: c.String("endpoint"), Invocation: c.Int("invocation-timeout"),
			}, api, out)
		}),
		g.Command(command.Verb{Name: "feature-flags", Category: categoryFlags, Usage: "List feature flags", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runFlags(c.Context, "", api, out)
			}),
		g.Command(command.Verb{Name: "feature-flag", Args: "FLAG", Category: categoryFlags, Usage: "Show the state of a feature flag", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runFlags(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{Name: "enable-feature-flag", Args: "FLAG", Category: categoryFlags, Usage: "Enable a feature flag for all users"},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runSetFlag(c.Context, c.Args().First(), true, api, out)
			}),
		g.Command(command.Verb{Name: "disable-feature-flag", Args: "FLAG", Category: categoryFlags, Usage: "Disable a feature flag for non-administrators"},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runSetFlag(c.Context, c.Args().First(), false, api, out)
			}),
	}
}

type checkRow struct {
	Process    string `json:"process"`
	Type       string `json:"type"`
	Endpoint   string `json:"endpoint,omitempty"`
	Invocation *int   `json:"invocation_timeout"`
}

func runGetCheck(ctx context.Context, name string, of func(v3.Process) v3.HealthCheck, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	all, err := api.Processes().List(ctx, a.GUID)
	if err != nil {
		return err
	}
	rows, table := []checkRow{}, [][]string{{"process", "type", "endpoint", "invocation timeout"}}
	for _, p := range all {
		h := of(p)
		r := checkRow{Process: p.Type, Type: h.Type, Endpoint: h.Data.Endpoint, Invocation: h.Data.InvocationTimeout}
		seconds := "1"
		if r.Invocation != nil {
			seconds = strconv.Itoa(*r.Invocation)
		}
		rows, table = append(rows, r), append(table, []string{r.Process, r.Type, r.Endpoint, seconds})
	}
	return console.List{Rows: rows, Table: table, Empty: "App " + a.Name + " has no processes"}.Show(out)
}

type checkOptions struct {
	App, Type, Process, Endpoint string
	Invocation                   int
}

func runSetCheck(ctx context.Context, o checkOptions, api *client.Client, out *console.Console) error {
	if !slices.Contains(app.CheckTypes(), o.Type) {
		return console.UsageError("TYPE must be process, port or http, not %q", o.Type)
	}
	if o.Endpoint != "" && o.Type != "http" {
		return console.UsageError("--endpoint needs the type http")
	}
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	all, err := api.Processes().List(ctx, a.GUID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p v3.Process) bool { return p.Type == o.Process })
	if i < 0 {
		return fmt.Errorf("app %s has no process type %q", a.Name, o.Process)
	}
	change := &v3.UpdateHealthCheck{Type: &o.Type, Data: &v3.UpdateHealthCheckData{}}
	if o.Type == "http" {
		if o.Endpoint == "" {
			o.Endpoint = "/"
		}
		change.Data.Endpoint = v3.Set(o.Endpoint)
	}
	if o.Invocation != 0 {
		change.Data.InvocationTimeout = v3.Set(v3.Int(o.Invocation))
	}
	if _, err := api.Processes().Update(ctx, all[i].GUID, v3.UpdateProcess{HealthCheck: change}); err != nil {
		return fmt.Errorf("cannot set the health check of %s: %w", a.Name, err)
	}
	out.Say("Set the health check of process %s of app %s to %s. To apply it now: dew restart %s", o.Process, a.Name, o.Type, a.Name)
	return nil
}

type flagRow struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
}

// runFlags shows all feature flags, or the one with the name.
func runFlags(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	all, err := api.Daemon().FeatureFlags(ctx)
	if err != nil {
		return err
	}
	rows, table := []flagRow{}, [][]string{{"feature", "state"}}
	for _, f := range all {
		if name != "" && f.Name != name {
			continue
		}
		rows, table = append(rows, flagRow{f.Name, f.Enabled}), append(table, []string{f.Name, flagState(f.Enabled)})
	}
	if name != "" && len(rows) == 0 {
		return command.SuggestNearest(fmt.Errorf("feature flag %q does not exist", name), name, all, func(f v3.FeatureFlag) string { return f.Name })
	}
	return console.List{Rows: rows, Table: table}.Show(out)
}

func flagState(enabled bool) string {
	if enabled {
		return "enabled"
	}
	return "disabled"
}

func runSetFlag(ctx context.Context, name string, enabled bool, api *client.Client, out *console.Console) error {
	f, err := api.Daemon().SetFeatureFlag(ctx, name, enabled)
	if err != nil {
		return fmt.Errorf("cannot change feature flag %s: %w", name, err)
	}
	out.Say("Feature flag %s is %s", f.Name, flagState(f.Enabled))
	return nil
}
