package push

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// ResourceCommands list buildpacks and droplets, and write manifests.
func ResourceCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "buildpacks", Category: categoryBuildpacks, Usage: "List buildpacks in the order in which dew tries them", Labels: "/v3/buildpacks",
			Flags: []cli.Flag{lifecycleFlag(), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runBuildpacks(c.Context, c.String("lifecycle"), api, out)
		}),
		g.Command(command.Verb{Name: "droplets", Args: "APP", Category: "Apps", Usage: "List the droplets of an app, newest first", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runDroplets(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{
			Name: "create-app-manifest", Args: "APP", Category: "Push", Usage: "Create a manifest from the current state of an app",
			About: "Examples:\n   dew create-app-manifest shop\n   dew create-app-manifest shop -p - | less",
			Flags: []cli.Flag{&cli.StringFlag{Name: "p", Usage: "Output `path`, - for stdout (default: APP_manifest.yml)"}},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runAppManifest(c.Context, c.Args().First(), c.String("p"), api, out)
		}),
	}
}

func runBuildpacks(ctx context.Context, lifecycle string, api *client.Client, out *console.Console) error {
	all, err := api.Bits().Buildpacks(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(b v3.Buildpack) bool { return lifecycle != "" && b.Lifecycle != lifecycle })
	table := [][]string{{"position", "name", "stack", "enabled", "locked", "state"}}
	for _, b := range all {
		stack := "any"
		if b.Stack != nil {
			stack = *b.Stack
		}
		table = append(table, []string{strconv.Itoa(b.Position), b.Name, stack, console.YesNo(b.Enabled), console.YesNo(b.Locked), b.State})
	}
	return console.List{Rows: append([]v3.Buildpack{}, all...), Table: table, Empty: "There are no buildpacks"}.Show(out)
}

type dropletRow struct {
	GUID      string    `json:"guid"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	Current   bool      `json:"current"`
	Stack     string    `json:"stack"`
}

func runDroplets(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	all, err := api.Bits().Droplets(ctx, a.GUID)
	if err != nil {
		return err
	}
	current, err := api.Bits().Droplet(ctx, a.GUID)
	if err != nil && !client.NotFound(err) {
		return err
	}
	rows, table := []dropletRow{}, [][]string{{"guid", "state", "created", "stack", "current"}}
	for _, d := range all {
		r := dropletRow{GUID: d.GUID, State: d.State, CreatedAt: d.CreatedAt.Time, Current: d.GUID == current.GUID, Stack: d.Stack}
		rows, table = append(rows, r), append(table, []string{r.GUID, strings.ToLower(r.State), r.CreatedAt.Local().Format(time.DateTime), r.Stack, console.YesNo(r.Current)})
	}
	return console.List{Rows: rows, Table: table, Empty: "App " + a.Name + " has no droplets"}.Show(out)
}

func runAppManifest(ctx context.Context, name, path string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	text, err := api.Apps().Manifest(ctx, a.GUID)
	if err != nil {
		return err
	}
	if path == "-" {
		_, err = out.Out.Write(text)
		return err
	}
	if path == "" {
		path = strings.ReplaceAll(a.Name, string(os.PathSeparator), "_") + "_manifest.yml"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // a manifest is not secret
	if err != nil {
		return fmt.Errorf("cannot write the manifest: %w", err)
	}
	_, werr := f.Write(text)
	if err := errors.Join(werr, f.Close()); err != nil {
		return fmt.Errorf("cannot write the manifest: %w", err)
	}
	out.Say("Wrote %s", path)
	return nil
}
