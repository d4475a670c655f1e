package apps

import (
	"context"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// LifeCommands start, stop, restart and restage apps.
func LifeCommands(g *command.Set) []*cli.Command {
	life := func(name, alias, about string, run func(context.Context, string, *client.Client, *console.Console) error) *cli.Command {
		return g.Command(command.Verb{Name: name, Alias: alias, Args: "APP", Category: "Apps", Usage: about, Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return run(c.Context, c.Args().First(), api, out)
			})
	}
	return []*cli.Command{
		life("start", "st", "Start an app and wait until it runs", runStart),
		life("stop", "sp", "Stop an app", runStop),
		replaceCommand(g, "restart", "rs", "Restart an app and wait until it runs", runRestart),
		replaceCommand(g, "restage", "rg", "Stage the newest package of an app again, restart it and wait until it runs", runRestage),
		g.Command(command.Verb{
			Name: "restart-app-instance", Args: "APP INDEX", Category: "Apps", Usage: "Restart one instance of an app",
			About: "Example:\n   dew restart-app-instance shop 1 --process web",
			Flags: []cli.Flag{&cli.StringFlag{Name: "process", Value: "web", Usage: "Process `type`"}},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			index, err := strconv.Atoi(c.Args().Get(1))
			if err != nil || index < 0 {
				return console.UsageError("%q is not an instance index: the first one is 0", c.Args().Get(1))
			}
			return runRestartInstance(c.Context, instanceOptions{Name: c.Args().First(), Process: c.String("process"), Index: index}, api, out)
		}),
	}
}

// replaceOptions are the arguments of commands that replace the instances of an app.
type replaceOptions struct {
	Name   string
	Deploy DeployOptions
}

func replaceCommand(g *command.Set, name, alias, about string, run func(context.Context, replaceOptions, *client.Client, *console.Console) error) *cli.Command {
	return g.Command(command.Verb{Name: name, Alias: alias, Args: "APP", Category: "Apps", Usage: about, Flags: append(StrategyFlags(), command.JSONFlag())},
		func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := replaceOptions{Name: c.Args().First(), Deploy: DeployOptionsOf(c)}
			if err := o.Deploy.Check(); err != nil {
				return err
			}
			return run(c.Context, o, api, out)
		})
}

func runStart(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	if a.State == v3.AppStarted {
		out.Say("App %s is already started", a.Name)
		return nil
	}
	return stageAndStart(ctx, a, client.Start, api, out)
}

func runRestart(ctx context.Context, o replaceOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if !o.Deploy.Gradual() {
		return stageAndStart(ctx, a, client.Restart, api, out)
	}
	droplet, err := unstaged(ctx, a, api, out)
	if err != nil {
		return err
	}
	return DeployAndShow(ctx, a, DeploySpec{Options: o.Deploy, Droplet: droplet}, api, out)
}

// stageAndStart stages a package that is not staged yet, starts the app, waits until it
// runs and shows its status.
func stageAndStart(ctx context.Context, a v3.App, action client.Action, api *client.Client, out *console.Console) error {
	droplet, err := unstaged(ctx, a, api, out)
	if err != nil {
		return err
	}
	if droplet != "" {
		if err := api.Bits().SetDroplet(ctx, a.GUID, droplet); err != nil {
			return err
		}
	}
	out.Say("Starting app %s…", a.Name)
	return ActAndShow(ctx, a, action, api, out)
}

// unstaged stages the newest package of an app if no build did. It returns the guid of
// the droplet, or nothing.
func unstaged(ctx context.Context, a v3.App, api *client.Client, out *console.Console) (string, error) {
	pkg, ok, err := api.Bits().NewestPackage(ctx, a.GUID)
	if err != nil || !ok {
		return "", err
	}
	builds, err := api.Bits().StagedBuilds(ctx, a.GUID)
	if err != nil {
		return "", err
	}
	for _, b := range builds {
		if b.Package.GUID == pkg.GUID {
			return "", nil
		}
	}
	out.Say("Staging app %s…", a.Name)
	return Stage(ctx, a, pkg.GUID, api, out)
}

// ActAndShow starts an app, waits until it runs and shows its status.
func ActAndShow(ctx context.Context, a v3.App, action client.Action, api *client.Client, out *console.Console) error {
	v, err := StartAndWait(ctx, a, action, api, out)
	if err != nil {
		return err
	}
	return v.show(out)
}

func runStop(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	if a.State == v3.AppStopped {
		out.Say("App %s is already stopped", a.Name)
		return nil
	}
	wait := out.Wait("Stopping app %s", a.Name)
	a, err = api.Apps().SetState(ctx, a.GUID, client.Stop)
	wait.End()
	if err != nil {
		return err
	}
	out.Say("Stopped app %s", a.Name)
	if out.JSON {
		return out.Encode(a)
	}
	return nil
}

func runRestage(ctx context.Context, o replaceOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	pkg, ok, err := api.Bits().NewestPackage(ctx, a.GUID)
	if err != nil {
		return err
	}
	if !ok {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s has no package to stage", a.Name), Advice: "Upload its files: dew push " + a.Name}
	}
	out.Say("Staging app %s…", a.Name)
	droplet, err := Stage(ctx, a, pkg.GUID, api, out)
	if err != nil {
		return err
	}
	if o.Deploy.Gradual() {
		return DeployAndShow(ctx, a, DeploySpec{Options: o.Deploy, Droplet: droplet}, api, out)
	}
	if err := api.Bits().SetDroplet(ctx, a.GUID, droplet); err != nil {
		return err
	}
	out.Say("Starting app %s…", a.Name)
	return ActAndShow(ctx, a, client.Restart, api, out)
}

// instanceOptions name one instance.
type instanceOptions struct {
	Name    string
	Process string
	Index   int
}

func runRestartInstance(ctx context.Context, o instanceOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if err := api.Processes().RestartInstance(ctx, a.GUID, o.Process, o.Index); err != nil {
		return fmt.Errorf("cannot restart instance %d of process %s of %s: %w", o.Index, o.Process, o.Name, err)
	}
	out.Say("Restarting instance %d of process %s of app %s", o.Index, o.Process, a.Name)
	return nil
}
