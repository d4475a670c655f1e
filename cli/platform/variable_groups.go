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

const variablesCategory = "Environment variable groups"

// variableGroups are the two environment variable groups, and when apps get their
// variables.
var variableGroups = []struct{ name, short, next string }{
	{"running", "r", "they start"},
	{"staging", "s", "they are staged"},
}

// VariableGroupCommands are the commands for environment variable groups.
func VariableGroupCommands(g *command.Set) []*cli.Command {
	var out []*cli.Command
	for _, group := range variableGroups {
		out = append(out,
			g.Command(command.Verb{
				Name: group.name + "-environment-variable-group", Alias: group.short + "evg", Category: variablesCategory,
				Usage: "Show the environment variables that all apps get when " + group.next, Flags: []cli.Flag{command.JSONFlag()},
			}, func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runVariableGroup(c.Context, group.name, api, out)
			}),
			g.Command(command.Verb{
				Name: "set-" + group.name + "-environment-variable-group", Alias: "s" + group.short + "evg", Args: "VARIABLES", Category: variablesCategory,
				Usage: "Set the environment variables that all apps get when " + group.next,
				About: "VARIABLES is a JSON object, or the name of a file that contains one. It replaces the whole group: dew removes variables that it does not contain. Apps get the new values the next time " + group.next + ".\n\nExample:\n   dew set-" + group.name + "-environment-variable-group '{\"HTTP_PROXY\":\"http://10.0.0.1:3128\"}'",
			}, func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runSetVariableGroup(c.Context, group.name, c.Args().First(), api, out)
			}))
	}
	return out
}

func runVariableGroup(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	vars, err := api.Daemon().EnvVarGroup(ctx, name)
	if err != nil {
		return err
	}
	table := [][]string{{"variable", "value"}}
	for _, key := range slices.Sorted(maps.Keys(vars.Var)) {
		table = append(table, []string{key, vars.Var[key]})
	}
	return console.List{Rows: vars.Var, Table: table, Empty: "The " + name + " environment variable group is empty"}.Show(out)
}

func runSetVariableGroup(ctx context.Context, name, typed string, api *client.Client, out *console.Console) error {
	text, err := command.ReadJSONObject("VARIABLES", typed)
	if err != nil {
		return err
	}
	wanted := map[string]*string{}
	if err := json.Unmarshal(text, &wanted); err != nil {
		return console.UsageError("the values in VARIABLES must be strings, such as {\"name\":\"value\"}: %w", err)
	}
	before, err := api.Daemon().EnvVarGroup(ctx, name)
	if err != nil {
		return err
	}
	for key := range before.Var {
		if _, stays := wanted[key]; !stays {
			wanted[key] = nil
		}
	}
	if err := api.Daemon().UpdateEnvVarGroup(ctx, name, wanted); err != nil {
		return fmt.Errorf("cannot set the %s environment variable group: %w", name, err)
	}
	out.Say("Set the %s environment variable group", name)
	return nil
}
