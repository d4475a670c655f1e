package push

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
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// PackageCommands are the single steps of a push: packages, staging, droplets.
func PackageCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{Name: "packages", Args: "APP", Category: "Apps", Usage: "List the packages of an app, newest first", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runPackages(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{
			Name: "create-package", Args: "APP", Category: "Push", Usage: "Upload the files of an app as a package, without staging it",
			About: "Example:\n   dew create-package shop -p build/",
			Flags: []cli.Flag{&cli.StringFlag{Name: "p", Value: ".", Usage: "Files to upload: the `path` of a folder, zip, jar or war"}, &cli.StringFlag{Name: "docker-image", Aliases: []string{"o"}, Usage: "Docker `image` instead of files, such as host:port/repository:tag"}, command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			if c.IsSet("p") && c.IsSet("docker-image") {
				return console.UsageError("-p and --docker-image cannot be used together")
			}
			return runCreatePackage(c.Context, packageOptions{App: c.Args().First(), Path: c.String("p"), Image: c.String("docker-image")}, api, out)
		}),
		g.Command(command.Verb{
			Name: "stage-package", Alias: "stage", Args: "APP", Category: "Push", Usage: "Stage a package into a droplet, without running it",
			About: "Example:\n   dew stage-package shop",
			Flags: []cli.Flag{&cli.StringFlag{Name: "package-guid", DefaultText: "the newest package", Usage: "Package `guid`"}, command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runStagePackage(c.Context, c.Args().First(), c.String("package-guid"), api, out)
		}),
		g.Command(command.Verb{
			Name: "set-droplet", Args: "APP DROPLET_GUID", Category: "Apps", Usage: "Set the droplet that an app runs from its next start on",
			About: "To list the droplets of an app: dew droplets APP",
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runSetDroplet(c.Context, c.Args().Get(0), c.Args().Get(1), api, out)
		}),
		g.Command(command.Verb{
			Name: "download-droplet", Args: "APP", Category: "Apps", Usage: "Download a droplet as a compressed tar file",
			About: "Example:\n   dew download-droplet shop --path shop.tgz",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "droplet", DefaultText: "the current droplet", Usage: "Droplet `guid`"},
				&cli.StringFlag{Name: "path", Aliases: []string{"p"}, Usage: "Output `path` (default: droplet_GUID.tgz)"},
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runDownloadDroplet(c.Context, downloadOptions{App: c.Args().First(), Droplet: c.String("droplet"), Path: c.String("path")}, api, out)
		}),
		g.CommandWithEnv(command.Verb{
			Name: "copy-source", Args: "SOURCE_APP TARGET_APP", Category: "Push", Usage: "Copy the files of an app to another app, stage and restart it",
			About: "Example:\n   dew copy-source shop shop-test",
			Flags: append([]cli.Flag{
				command.BoolFlag("no-restart", "Do not stage and restart the target app"),
				&cli.StringFlag{Name: "organization", Aliases: []string{"o"}, Usage: "Name of the `org` of the target app (default: the targeted org)"},
				&cli.StringFlag{Name: "space", Aliases: []string{"s"}, Usage: "Name of the `space` of the target app (default: the targeted space)"}, command.JSONFlag(),
			}, apps.StrategyFlags()...),
		}, func(c *cli.Context, w command.Env) error {
			return runCopySource(c.Context, sourceOptions{
				From: c.Args().Get(0), To: c.Args().Get(1), NoRestart: c.Bool("no-restart"), Org: c.String("organization"), Space: c.String("space"), Deploy: apps.DeployOptionsOf(c),
			}, w)
		}),
	}
}

type packageRow struct {
	GUID      string    `json:"guid"`
	State     string    `json:"state"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
}

func runPackages(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	all, err := api.Bits().Packages(ctx, a.GUID)
	if err != nil {
		return err
	}
	rows, table := []packageRow{}, [][]string{{"guid", "state", "type", "created"}}
	for _, p := range all {
		r := packageRow{GUID: p.GUID, State: p.State, Type: p.Type, CreatedAt: p.CreatedAt.Time}
		rows, table = append(rows, r), append(table, []string{r.GUID, strings.ToLower(r.State), r.Type, r.CreatedAt.Local().Format(time.DateTime)})
	}
	return console.List{Rows: rows, Table: table, Empty: "App " + a.Name + " has no packages"}.Show(out)
}

type packageOptions struct {
	App, Path string
	Image     string // empty: files
}

func runCreatePackage(ctx context.Context, o packageOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	p, err := o.send(ctx, a, api, out)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(p)
	}
	out.Say("Created package %s of app %s", p.GUID, a.Name)
	return nil
}

// send creates a new package of an app.
func (o packageOptions) send(ctx context.Context, a v3.App, api *client.Client, out *console.Console) (v3.Package, error) {
	if o.Image != "" {
		return api.Bits().CreateImagePackage(ctx, a.GUID, v3.DockerData{Image: o.Image})
	}
	b, err := gather(o.Path, out)
	if err != nil {
		return v3.Package{}, err
	}
	p, err := sendBits(ctx, a, b, api, out)
	return p, errors.Join(err, b.close())
}

func runStagePackage(ctx context.Context, name, pkg string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	if pkg == "" {
		p, err := newestPackage(ctx, a, api)
		if err != nil {
			return err
		}
		pkg = p.GUID
	}
	d, err := apps.Stage(ctx, a, pkg, api, out)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(map[string]string{"droplet": d})
	}
	out.Say("Staged droplet %s of app %s. To use it: dew set-droplet %s %s", d, a.Name, a.Name, d)
	return nil
}

func newestPackage(ctx context.Context, a v3.App, api *client.Client) (v3.Package, error) {
	p, ok, err := api.Bits().NewestPackage(ctx, a.GUID)
	if err == nil && !ok {
		err = fmt.Errorf("app %s has no package: push the app first", a.Name)
	}
	return p, err
}

func runSetDroplet(ctx context.Context, name, droplet string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	if err := api.Bits().SetDroplet(ctx, a.GUID, droplet); err != nil {
		return fmt.Errorf("cannot set the droplet of %s: %w", a.Name, err)
	}
	out.Say("App %s will run droplet %s from its next start on. To restart it: dew restart %s", a.Name, droplet, a.Name)
	return nil
}

type downloadOptions struct{ App, Droplet, Path string }

func runDownloadDroplet(ctx context.Context, o downloadOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	if o.Droplet == "" {
		d, err := api.Bits().Droplet(ctx, a.GUID)
		if client.NotFound(err) {
			return fmt.Errorf("app %s has no droplet: push the app, or choose a droplet with --droplet", a.Name)
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
	defer out.Wait("Downloading droplet %s", o.Droplet).End()
	err = api.Bits().DownloadDroplet(ctx, o.Droplet, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(o.Path)) // an incomplete file is useless
	}
	out.Say("Wrote %s", o.Path)
	return nil
}

type sourceOptions struct {
	From, To   string
	Org, Space string // of the target; empty: the targeted ones
	NoRestart  bool
	Deploy     apps.DeployOptions
}

func runCopySource(ctx context.Context, o sourceOptions, w command.Env) error {
	switch {
	case o.Org != "" && o.Space == "":
		return console.UsageError("--organization needs --space")
	case o.NoRestart && o.Deploy.Gradual():
		return console.UsageError("--strategy and --no-restart cannot be used together")
	}
	if err := o.Deploy.Check(); err != nil {
		return err
	}
	from, err := command.FindApp(ctx, w.Client, o.From)
	if err != nil {
		return err
	}
	to, err := o.target(ctx, w)
	if err != nil {
		return err
	}
	source, err := newestPackage(ctx, from, w.Client)
	if err != nil {
		return err
	}
	p, err := w.Client.Bits().CopyPackage(ctx, source.GUID, to.GUID)
	if err != nil {
		return fmt.Errorf("cannot copy the files of %s to %s: %w", from.Name, to.Name, err)
	}
	w.Out.Say("Copied the files of app %s to app %s", from.Name, to.Name)
	if o.NoRestart {
		return nil
	}
	d, err := apps.Stage(ctx, to, p.GUID, w.Client, w.Out)
	if err != nil {
		return err
	}
	if o.Deploy.Gradual() {
		return apps.DeployAndShow(ctx, to, apps.DeploySpec{Options: o.Deploy, Droplet: d}, w.Client, w.Out)
	}
	if err := w.Client.Bits().SetDroplet(ctx, to.GUID, d); err != nil {
		return err
	}
	return apps.ActAndShow(ctx, to, client.Restart, w.Client, w.Out)
}

// target is the app that gets the files.
func (o sourceOptions) target(ctx context.Context, w command.Env) (v3.App, error) {
	if o.Space == "" {
		return command.FindApp(ctx, w.Client, o.To)
	}
	_, s, err := command.SpaceOptions{Name: o.Space, Org: o.Org}.Find(ctx, w)
	if err != nil {
		return v3.App{}, err
	}
	all, err := w.Client.Apps().ListIn(ctx, s.GUID)
	if err != nil {
		return v3.App{}, err
	}
	for _, a := range all {
		if a.Name == o.To {
			return a, nil
		}
	}
	return v3.App{}, command.SuggestNearest(&client.NoApp{Name: o.To}, o.To, all, func(a v3.App) string { return a.Name })
}
