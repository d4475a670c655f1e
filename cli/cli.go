// Package cli is the command line of dew. It combines the commands of the packages
// below, prints their help and turns errors into exit statuses.
//
//	cli.go        all commands              help.go      help, misspelled commands
//	args.go       flags can go anywhere     complete.go  words for shell completion
//	completion.go completion scripts
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
	"github.com/dewrun/dew/cli/kubernetes"
	"github.com/dewrun/dew/cli/logs"
	"github.com/dewrun/dew/cli/platform"
	"github.com/dewrun/dew/cli/push"
	"github.com/dewrun/dew/cli/routes"
	"github.com/dewrun/dew/cli/services"
	"github.com/dewrun/dew/cli/shell"
	"github.com/dewrun/dew/cli/smoketest"
	"github.com/dewrun/dew/cli/top"
)

// Main runs the command on the command line and returns the exit status.
func Main(ctx context.Context, version string) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	out := console.New(os.Stdout, os.Stderr, os.Stdin)
	err := newApp(version, out).RunContext(ctx, os.Args)
	cause := context.Cause(ctx)
	stop()
	if err != nil && err.Error() != "" && cause == nil {
		text := command.Explain(err)
		if out.ErrTerminal {
			text = console.Printable(text) // parts of it can come from an instance
		}
		fmt.Fprintln(os.Stderr, "dew: "+text)
	}
	return command.ExitStatus(err, cause)
}

// newApp creates all commands, which write to out.
func newApp(version string, out *console.Console) *runner {
	out.Err = console.StatusLineOver(out.Err)
	g := &command.Set{Out: out, Version: version}
	g.Complete = completer{g}.words
	a := &cli.App{
		Name:                 "dew",
		Usage:                "Run Cloud Foundry style apps and their sidecars on this machine",
		UsageText:            usageText,
		Description:          aboutDew + "\n\nExit status:\n" + exitStatuses,
		Metadata:             map[string]any{"about": aboutDew, "exit": exitStatuses},
		Version:              version,
		Writer:               out.Out,
		ErrWriter:            out.Err,
		HideVersion:          true,
		EnableBashCompletion: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", EnvVars: []string{"DEW_RUN"}, Value: "/run/dew", Destination: &g.Run, Usage: "Run-time `folder` of the daemon, which contains its socket"},
			&cli.StringFlag{Name: "api", EnvVars: []string{"DEW_API"}, Destination: &g.API, Usage: "`URL` of the daemon to use, even if dew is logged in to another one"},
			helpFlag, // urfave/cli adds it only to apps without a help command
		},
		Before: func(c *cli.Context) error {
			// DEW_RUN only sets the folder of the local daemon. The flag also selects
			// that daemon instead of the one of dew login.
			g.Local = c.IsSet("run") && g.Run != os.Getenv("DEW_RUN")
			if g.Local && g.API != os.Getenv("DEW_API") {
				return globalUsageError(errors.New("--run and --api cannot be used together"))
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
		push.Commands, apps.Commands, top.Commands, daemon.ConsoleCommands, apps.LifeCommands, apps.ScaleCommands, apps.DeployCommands, push.PackageCommands, apps.CheckCommands, smoketest.Commands, apps.EnvCommands, logs.Commands, apps.WhyCommands, apps.CrashCommands, shell.Commands, shell.TaskCommands,
		routes.Commands, services.Commands, platform.LoginCommands, platform.TargetCommands, platform.OrgCommands, platform.SpaceCommands, platform.UserCommands, platform.RoleCommands, platform.ClientCommands, daemon.InboxCommands, daemon.MailCommands, daemon.TemplateCommands, apps.NotifyCommands, routes.DomainListCommands, push.ResourceCommands, push.BuildpackCommands, push.StackCommands,
		platform.LabelCommands, platform.SpaceSSHCommands, routes.SingleRouteCommands, routes.DomainCommands, platform.UsageCommands, platform.QuotaCommands, platform.SecurityGroupCommands, platform.NetworkPolicyCommands, platform.IsolationCommands, platform.VariableGroupCommands,
		daemon.Commands, daemon.CurlCommands, kubernetesCommands, completionCommands, helpCommands,
	} {
		a.Commands = append(a.Commands, group(g)...)
	}
	a.CustomAppHelpTemplate = appHelp(a.Commands)
	return &runner{app: a, typed: func(args []string) { g.Typed = args }}
}

// kubernetesCommands install dewd in a cluster with the program dewd.
func kubernetesCommands(g *command.Set) []*cli.Command {
	return kubernetes.Commands(g, daemon.RunDewd)
}

// usageText is how dew is called.
const usageText = "dew [--run folder | --api URL] command [arguments] [flags]"

const aboutDew = `Commands and flags are those of cf. Flags can go anywhere after the command.

By default dew uses the daemon of this machine, over its socket. After dew login
it uses the daemon at that URL, until dew logout. --run always uses the socket,
--api another URL. Logins and targets are stored in .dew/config.json in your home
folder, or in the folder DEW_HOME. In scripts, set DEW_API, DEW_USERNAME and
DEW_PASSWORD instead of running dew login.`

// noCommand runs if no command was given, or one that does not exist.
func noCommand(c *cli.Context) error {
	if c.NArg() == 0 {
		return showBasicCommands(c)
	}
	return noSuchCommand(c.App, c.Args().First())
}
