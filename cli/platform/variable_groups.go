package platform

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

const variablesCategory = "Variables of all apps"

// variableGroups are the variables that all apps have, by when they have them.
var variableGroups = []struct{ name, short, when string }{
	{"running", "r", "while they run, from their next start on"},
	{"staging", "s", "while they are staged"},
}

// VariableGroupCommands are about the environment variables of all apps.
func VariableGroupCommands(g *command.Set) []*cli.Command {
	var out []*cli.Command
	for _, group := range variableGroups {
		out = append(out,
			g.Command(command.Verb{
				Name: group.name + "-environment-variable-group", Alias: group.short + "evg", Category: variablesCategory,
				Usage: "show the variables that all apps have " + group.when, Flags: []cli.Flag{command.JSONFlag()},
			}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runVariableGroup(c.Context, group.name, ask, out)
			}),
			g.Command(command.Verb{
				Name: "set-" + group.name + "-environment-variable-group", Alias: "s" + group.short + "evg", Args: "VARIABLES", Category: variablesCategory,
				Usage: "say which variables all apps have " + group.when,
				About: "VARIABLES is a JSON object, or the name of a file with one. Those that are not in it go.\n\nExample:\n   dew set-" + group.name + "-environment-variable-group '{\"HTTP_PROXY\":\"http://10.0.0.1:3128\"}'",
			}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
				return runSetVariableGroup(c.Context, group.name, c.Args().First(), ask, out)
			}))
	}
	return out
}

func runVariableGroup(ctx context.Context, name string, ask *client.Client, out *console.Console) error {
	vars, err := ask.Daemon().EnvVarGroup(ctx, name)
	if err != nil {
		return err
	}
	table := [][]string{{"variable", "value"}}
	for _, key := range slices.Sorted(maps.Keys(vars.Var)) {
		table = append(table, []string{key, vars.Var[key]})
	}
	return console.List{Rows: vars.Var, Table: table, Empty: "There are no variables that all apps have (" + name + ")"}.Show(out)
}

func runSetVariableGroup(ctx context.Context, name, typed string, ask *client.Client, out *console.Console) error {
	text, err := command.ReadJSONObject("VARIABLES", typed)
	if err != nil {
		return err
	}
	wanted := map[string]*string{}
	if err := json.Unmarshal(text, &wanted); err != nil {
		return console.UsageError("VARIABLES must have texts as values, such as {\"name\":\"value\"}: %w", err)
	}
	before, err := ask.Daemon().EnvVarGroup(ctx, name)
	if err != nil {
		return err
	}
	for key := range before.Var {
		if _, stays := wanted[key]; !stays {
			wanted[key] = nil
		}
	}
	if err := ask.Daemon().UpdateEnvVarGroup(ctx, name, wanted); err != nil {
		return fmt.Errorf("cannot set the variables of all apps (%s): %w", name, err)
	}
	out.Say("Set the variables of all apps (%s)", name)
	return nil
}
