package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// EnvCommands show and set environment variables of an app.
func EnvCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "env", Alias: "e", Args: "APP", Category: "Environment variables", Usage: "Show the environment variables of an app", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runEnv(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{
			Name: "set-env", Alias: "se", Args: "APP NAME VALUE", Category: "Environment variables", Usage: "Set an environment variable of an app",
			About: "An empty value removes the variable. Running instances get the change when the app restarts.\n\nExample:\n   dew set-env shop JAVA_OPTS -Xmx64m && dew restart shop",
		},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runSetEnv(c.Context, setEnvOptions{App: c.Args().Get(0), Name: c.Args().Get(1), Value: c.Args().Get(2)}, api, out)
			}),
		g.Command(command.Verb{Name: "unset-env", Alias: "ue", Args: "APP NAME", Category: "Environment variables", Usage: "Remove an environment variable from an app"},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runUnsetEnv(c.Context, c.Args().Get(0), c.Args().Get(1), api, out)
			}),
	}
}

func runEnv(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	e, err := api.Apps().Env(ctx, a.GUID)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(e)
	}
	for _, m := range []map[string]any{e.System, e.Application} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			b, err := json.MarshalIndent(m[name], "", "  ")
			if err != nil {
				return fmt.Errorf("cannot write %s: %w", name, err)
			}
			fmt.Fprintf(out.Out, "%s: %s\n", name, b)
		}
	}
	for _, m := range []map[string]string{e.Running, e.Staging, e.Environment} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			fmt.Fprintf(out.Out, "%s: %s\n", name, m[name])
		}
	}
	return nil
}

type setEnvOptions struct{ App, Name, Value string }

// runSetEnv sets a variable. An empty value removes it, as in cf.
func runSetEnv(ctx context.Context, o setEnvOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	value := &o.Value
	if o.Value == "" {
		value = nil
	}
	if err := api.Apps().UpdateEnv(ctx, a.GUID, map[string]*string{o.Name: value}); err != nil {
		return err
	}
	out.Say("Set %s of app %s. To apply it to running instances: dew restart %s", o.Name, a.Name, a.Name)
	return nil
}

func runUnsetEnv(ctx context.Context, name, variable string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	e, err := api.Apps().Env(ctx, a.GUID)
	if err != nil {
		return err
	}
	if _, set := e.Environment[variable]; !set {
		out.Say("App %s has no environment variable %s", a.Name, variable)
		return nil
	}
	if err := api.Apps().UpdateEnv(ctx, a.GUID, map[string]*string{variable: nil}); err != nil {
		return err
	}
	out.Say("Removed %s from app %s. To apply it to running instances: dew restart %s", variable, a.Name, a.Name)
	return nil
}
