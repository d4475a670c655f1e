package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

func packageCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{name: "packages", args: "APP", category: "Apps", usage: "list what was pushed for an app, newest first", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runPackages(c.Context, c.Args().First(), ask, out)
			}),
		g.command(verb{
			name: "create-package", args: "APP", category: "Push", usage: "upload files for an app without staging them",
			about: "Example:\n   dew create-package shop -p build/",
			flags: []cli.Flag{&cli.StringFlag{Name: "p", Value: ".", Usage: "`path` of a folder, or of a zip, jar or war"}, jsonFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runCreatePackage(c.Context, c.Args().First(), c.String("p"), ask, out)
		}),
		g.command(verb{
			name: "stage-package", alias: "stage", args: "APP", category: "Push", usage: "make a droplet of a package, and do not run it yet",
			about: "Example:\n   dew stage-package shop",
			flags: []cli.Flag{&cli.StringFlag{Name: "package-guid", DefaultText: "the newest", Usage: "`guid` of the package"}, jsonFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runStagePackage(c.Context, c.Args().First(), c.String("package-guid"), ask, out)
		}),
		g.command(verb{
			name: "set-droplet", args: "APP DROPLET_GUID", category: "Apps", usage: "say which droplet an app runs from its next start on",
			about: "dew droplets APP lists those that there are.",
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runSetDroplet(c.Context, c.Args().Get(0), c.Args().Get(1), ask, out)
		}),
		g.command(verb{
			name: "download-droplet", args: "APP", category: "Apps", usage: "write the files of a droplet to a compressed tar",
			about: "Example:\n   dew download-droplet shop --path shop.tgz",
			flags: []cli.Flag{
				&cli.StringFlag{Name: "droplet", DefaultText: "the one that the app runs", Usage: "`guid` of the droplet"},
				&cli.StringFlag{Name: "path", Aliases: []string{"p"}, Usage: "`path` of the file (default: droplet_GUID.tgz)"},
			},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runDownloadDroplet(c.Context, downloadOptions{App: c.Args().First(), Droplet: c.String("droplet"), Path: c.String("path")}, ask, out)
		}),
		g.command(verb{
			name: "copy-source", args: "SOURCE_APP TARGET_APP", category: "Push", usage: "give an app the files of another one, and restart it with them",
			about: "Example:\n   dew copy-source shop shop-test",
			flags: []cli.Flag{boolFlag("no-restart", "do not stage and restart the target"), jsonFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runCopySource(c.Context, sourceOptions{From: c.Args().Get(0), To: c.Args().Get(1), NoRestart: c.Bool("no-restart")}, ask, out)
		}),
	}
}

type packageRow struct {
	GUID      string    `json:"guid"`
	State     string    `json:"state"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
}

func runPackages(ctx context.Context, name string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	all, err := ask.Packages(ctx, a.GUID)
	if err != nil {
		return err
	}
	rows, table := []packageRow{}, [][]string{{"guid", "state", "type", "created"}}
	for _, p := range all {
		r := packageRow{GUID: p.GUID, State: p.State, Type: p.Type, CreatedAt: p.CreatedAt.Time}
		rows, table = append(rows, r), append(table, []string{r.GUID, strings.ToLower(r.State), r.Type, r.CreatedAt.Local().Format(time.DateTime)})
	}
	return listed{rows: rows, table: table, none: "App " + a.Name + " has no packages"}.show(out)
}

func runCreatePackage(ctx context.Context, name, path string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	b, err := gather(path, out)
	if err != nil {
		return err
	}
	p, err := sendBits(ctx, a, b, ask, out)
	if err = errors.Join(err, b.close()); err != nil {
		return err
	}
	if out.json {
		return out.encode(p)
	}
	out.say("Created package %s of app %s", p.GUID, a.Name)
	return nil
}

func runStagePackage(ctx context.Context, name, pkg string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	if pkg == "" {
		p, err := newestPackage(ctx, a, ask)
		if err != nil {
			return err
		}
		pkg = p.GUID
	}
	d, err := stage(ctx, a, pkg, ask, out)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(map[string]string{"droplet": d})
	}
	out.say("Staged droplet %s of app %s (dew set-droplet %s %s makes it the one to run)", d, a.Name, a.Name, d)
	return nil
}

func newestPackage(ctx context.Context, a v3.App, ask *client.Client) (v3.Package, error) {
	p, ok, err := ask.NewestPackage(ctx, a.GUID)
	if err == nil && !ok {
		err = fmt.Errorf("app %s has no package: push it first", a.Name)
	}
	return p, err
}

func runSetDroplet(ctx context.Context, name, droplet string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	if err := ask.SetDroplet(ctx, a.GUID, droplet); err != nil {
		return fmt.Errorf("cannot set the droplet of %s: %w", a.Name, err)
	}
	out.say("App %s runs droplet %s from its next start on (dew restart %s)", a.Name, droplet, a.Name)
	return nil
}

type downloadOptions struct{ App, Droplet, Path string }

func runDownloadDroplet(ctx context.Context, o downloadOptions, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	if o.Droplet == "" {
		d, err := ask.Droplet(ctx, a.GUID)
		if client.NotFound(err) {
			return fmt.Errorf("app %s has no droplet: push it, or name one with --droplet", a.Name)
		}
		if err != nil {
			return err
		}
		o.Droplet = d.GUID
	}
	if o.Path == "" {
		o.Path = "droplet_" + o.Droplet + ".tgz"
	}
	f, err := os.OpenFile(o.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the droplet: %w", err)
	}
	err = ask.DownloadDroplet(ctx, o.Droplet, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(o.Path)) // a part of it is of no use
	}
	out.say("Wrote %s", o.Path)
	return nil
}

type sourceOptions struct {
	From, To  string
	NoRestart bool
}

func runCopySource(ctx context.Context, o sourceOptions, ask *client.Client, out *console) error {
	from, err := findApp(ctx, ask, o.From)
	if err != nil {
		return err
	}
	to, err := findApp(ctx, ask, o.To)
	if err != nil {
		return err
	}
	source, err := newestPackage(ctx, from, ask)
	if err != nil {
		return err
	}
	p, err := ask.CopyPackage(ctx, source.GUID, to.GUID)
	if err != nil {
		return fmt.Errorf("cannot copy the files of %s to %s: %w", from.Name, to.Name, err)
	}
	out.say("Copied the files of app %s to app %s", from.Name, to.Name)
	if o.NoRestart {
		return nil
	}
	d, err := stage(ctx, to, p.GUID, ask, out)
	if err != nil {
		return err
	}
	if err := ask.SetDroplet(ctx, to.GUID, d); err != nil {
		return err
	}
	return show(ctx, to, client.Restart, ask, out)
}
