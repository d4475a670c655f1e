package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

func envCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{name: "env", alias: "e", args: "APP", category: "Environment", usage: "show the variables of an app", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runEnv(c.Context, c.Args().First(), ask, out)
			}),
		g.command(verb{
			name: "set-env", alias: "se", args: "APP NAME VALUE", category: "Environment", usage: "set a variable of an app from its next start on",
			about: "An empty value removes it.\n\nExample:\n   dew set-env shop JAVA_OPTS -Xmx64m && dew restart shop",
		},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runSetEnv(c.Context, setEnvOptions{App: c.Args().Get(0), Name: c.Args().Get(1), Value: c.Args().Get(2)}, ask, out)
			}),
		g.command(verb{name: "unset-env", alias: "ue", args: "APP NAME", category: "Environment", usage: "remove a variable of an app from its next start on"},
			func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runUnsetEnv(c.Context, c.Args().Get(0), c.Args().Get(1), ask, out)
			}),
	}
}

func runEnv(ctx context.Context, name string, ask *client.Client, out *console.Console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	e, err := ask.Apps().Env(ctx, a.GUID)
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

// runSetEnv sets a variable; an empty value unsets it, as cf does.
func runSetEnv(ctx context.Context, o setEnvOptions, ask *client.Client, out *console.Console) error {
	a, err := findApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	value := &o.Value
	if o.Value == "" {
		value = nil
	}
	if err := ask.Apps().UpdateEnv(ctx, a.GUID, map[string]*string{o.Name: value}); err != nil {
		return err
	}
	out.Say("Set %s of app %s; running instances see it after dew restart %s", o.Name, a.Name, a.Name)
	return nil
}

func runUnsetEnv(ctx context.Context, name, variable string, ask *client.Client, out *console.Console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	e, err := ask.Apps().Env(ctx, a.GUID)
	if err != nil {
		return err
	}
	if _, set := e.Environment[variable]; !set {
		out.Say("App %s has no variable %s", a.Name, variable)
		return nil
	}
	if err := ask.Apps().UpdateEnv(ctx, a.GUID, map[string]*string{variable: nil}); err != nil {
		return err
	}
	out.Say("Removed %s of app %s; running instances lose it after dew restart %s", variable, a.Name, a.Name)
	return nil
}
