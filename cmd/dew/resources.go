package main

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
	v3 "github.com/dewrun/dew/api/v3"
)

func resourceCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{
			name: "buildpacks", category: "Platform", usage: "list the buildpacks, in the order in which they are tried", labels: "/v3/buildpacks",
			flags: []cli.Flag{lifecycleFlag(), jsonFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runBuildpacks(c.Context, c.String("lifecycle"), ask, out)
		}),
		g.command(verb{name: "droplets", args: "APP", category: "Apps", usage: "list what an app could run, newest first", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runDroplets(c.Context, c.Args().First(), ask, out)
			}),
		g.command(verb{
			name: "create-app-manifest", args: "APP", category: "Push", usage: "write the manifest that makes an app as it is now",
			about: "Examples:\n   dew create-app-manifest shop\n   dew create-app-manifest shop -p - | less",
			flags: []cli.Flag{&cli.StringFlag{Name: "p", Usage: "`path` of the manifest, - for stdout (default: APP_manifest.yml)"}},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runAppManifest(c.Context, c.Args().First(), c.String("p"), ask, out)
		}),
	}
}

// listed is a list as people and as programs read it.
type listed struct {
	rows  any
	table [][]string // the first row is the head
	none  string     // instead of a table that has no more than that
}

func (l listed) show(out *console) error {
	switch {
	case out.json:
		return out.encode(l.rows)
	case len(l.table) < 2:
		out.say("%s", l.none)
		return nil
	default:
		return out.table(l.table)
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func runBuildpacks(ctx context.Context, lifecycle string, ask *client.Client, out *console) error {
	all, err := ask.Bits().Buildpacks(ctx)
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
		table = append(table, []string{strconv.Itoa(b.Position), b.Name, stack, yes(b.Enabled), yes(b.Locked), b.State})
	}
	return listed{rows: append([]v3.Buildpack{}, all...), table: table, none: "There are no buildpacks"}.show(out)
}

type dropletRow struct {
	GUID      string    `json:"guid"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	Current   bool      `json:"current"`
	Stack     string    `json:"stack"`
}

func runDroplets(ctx context.Context, name string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	all, err := ask.Bits().Droplets(ctx, a.GUID)
	if err != nil {
		return err
	}
	current, err := ask.Bits().Droplet(ctx, a.GUID)
	if err != nil && !client.NotFound(err) {
		return err
	}
	rows, table := []dropletRow{}, [][]string{{"guid", "state", "created", "stack", "current"}}
	for _, d := range all {
		r := dropletRow{GUID: d.GUID, State: d.State, CreatedAt: d.CreatedAt.Time, Current: d.GUID == current.GUID, Stack: d.Stack}
		rows, table = append(rows, r), append(table, []string{r.GUID, strings.ToLower(r.State), r.CreatedAt.Local().Format(time.DateTime), r.Stack, yes(r.Current)})
	}
	return listed{rows: rows, table: table, none: "App " + a.Name + " has no droplets"}.show(out)
}

func runAppManifest(ctx context.Context, name, path string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	text, err := ask.Apps().Manifest(ctx, a.GUID)
	if err != nil {
		return err
	}
	if path == "-" {
		_, err = out.out.Write(text)
		return err
	}
	if path == "" {
		path = strings.ReplaceAll(a.Name, string(os.PathSeparator), "_") + "_manifest.yml"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // a manifest is for everybody
	if err != nil {
		return fmt.Errorf("cannot write the manifest: %w", err)
	}
	_, werr := f.Write(text)
	if err := errors.Join(werr, f.Close()); err != nil {
		return fmt.Errorf("cannot write the manifest: %w", err)
	}
	out.say("Wrote %s", path)
	return nil
}
