// Package cli is the command line of dew: all commands, the help, the completion,
// and how a command ends.
//
//	cli.go   all commands                     help.go        the everyday commands, errors in names
//	args.go  flags can go anywhere            completion.go  complete.go: completion in shells
//
// The packages below have the commands by subject. They share command and console.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/daemon"
	"github.com/dewrun/dew/cli/logs"
	"github.com/dewrun/dew/cli/platform"
	"github.com/dewrun/dew/cli/push"
	"github.com/dewrun/dew/cli/routes"
	"github.com/dewrun/dew/cli/services"
	"github.com/dewrun/dew/cli/shell"
	"github.com/dewrun/dew/cli/smoketest"
)

// Main runs the command that the arguments of the program name, and gives the exit
// status.
func Main(ctx context.Context, version string) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	out := console.New(os.Stdout, os.Stderr, os.Stdin)
	err := newApp(version, out).RunContext(ctx, os.Args)
	cause := context.Cause(ctx)
	stop()
	if err != nil && err.Error() != "" && cause == nil {
		text := command.Explain(err)
		if out.ErrTerminal {
			text = console.Printable(text) // parts of it may come from inside of an instance
		}
		fmt.Fprintln(os.Stderr, "dew: "+text)
	}
	return command.ExitStatus(err, cause)
}

// newApp makes all commands, which write to out.
func newApp(version string, out *console.Console) *runner {
	out.Err = console.StatusLineOver(out.Err)
	g := &command.Set{Out: out, Version: version}
	g.Complete = completer{g}.words
	a := &cli.App{
		Name:                 "dew",
		Usage:                "run Cloud Foundry style apps and their sidecars on this machine",
		UsageText:            usageText,
		Description:          aboutDew + "\n\n" + statusHelp,
		Version:              version,
		Writer:               out.Out,
		ErrWriter:            out.Err,
		HideVersion:          true,
		EnableBashCompletion: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", EnvVars: []string{"DEW_RUN"}, Value: "/run/dew", Destination: &g.Run, Usage: "`folder` of the daemon's run-time files, where its socket is"},
			&cli.StringFlag{Name: "api", EnvVars: []string{"DEW_API"}, Destination: &g.API, Usage: "`URL` of the daemon to ask, whatever dew is logged in to"},
			cli.HelpFlag, // only apps without a help command of their own get it
		},
		Before: func(c *cli.Context) error {
			// A variable says where a daemon is; only a flag says which one is meant.
			g.Local = c.IsSet("run") && g.Run != os.Getenv("DEW_RUN")
			if g.Local && g.API != os.Getenv("DEW_API") {
				return globalUsageError(errors.New("--run and --api exclude each other"))
			}
			if g.Local {
				g.API = ""
			}
			return nil
		},
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return globalUsageError(err) },
		ExitErrHandler: func(*cli.Context, error) {}, // main prints and exits
		Action:         noCommand,
	}
	for _, group := range []func(*command.Set) []*cli.Command{
		push.Commands, smoketest.Commands, push.PackageCommands, apps.Commands, apps.CheckCommands, apps.LifeCommands, apps.DeployCommands, apps.ScaleCommands, apps.EnvCommands, logs.Commands, apps.CrashCommands, shell.Commands, shell.TaskCommands,
		routes.Commands, services.Commands, platform.LoginCommands, platform.TargetCommands, platform.OrgCommands, platform.SpaceCommands, platform.UserCommands, platform.RoleCommands, platform.ClientCommands, daemon.InboxCommands, apps.NotifyCommands, routes.DomainListCommands, push.ResourceCommands, push.BuildpackCommands, push.StackCommands,
		platform.LabelCommands, platform.SpaceSSHCommands, routes.SingleRouteCommands, routes.DomainCommands, platform.UsageCommands, platform.QuotaCommands, platform.SecurityGroupCommands, platform.IsolationCommands, platform.VariableGroupCommands,
		daemon.Commands, daemon.CurlCommands, completionCommands, helpCommands,
	} {
		a.Commands = append(a.Commands, group(g)...)
	}
	return &runner{app: a, typed: func(args []string) { g.Typed = args }}
}

// usageText is how dew is called.
const usageText = "dew [--run folder | --api URL] command [arguments] [flags]"

const aboutDew = `Names and flags are those of cf; flags may stand anywhere behind the command.

Without a login dew speaks to the daemon of this machine, over its socket. After
dew login it speaks to the daemon at that URL, until dew logout; --run goes to
the socket nevertheless, --api to another URL. Logins and targets are kept in
.dew/config.json below DEW_HOME, which is the home folder unless it is set. In
scripts, DEW_API, DEW_USERNAME and DEW_PASSWORD need no dew login.`

// noCommand runs if no command was given, or one that does not exist.
func noCommand(c *cli.Context) error {
	if c.NArg() == 0 {
		return showEveryday(c)
	}
	return noSuchCommand(c.App, c.Args().First())
}
