package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

// Set creates commands and holds the state that they share.
type Set struct {
	Run   string   // run-time folder of the local daemon
	API   string   // URL of --api or DEW_API
	Local bool     // --run was given: use only the socket
	Typed []string // the command line
	Out   *console.Console

	Version  string
	Complete func(Verb) cli.BashCompleteFunc // suggests words for shell completion
}

// Verb describes a command. Args are its arguments as the help shows them; those in
// brackets are optional.
type Verb struct {
	Name, Alias, Args string
	Usage             string
	About             string
	Category          string
	Flags             []cli.Flag
	Labels            string // API path of the list that --labels filters; empty: no --labels
	ThisMachine       bool   // use the daemon of this machine, even if dew is logged in to another
}

// clientAction is a command that needs a client.
type clientAction func(c *cli.Context, api *client.Client, out *console.Console) error

// envAction is a command that needs its environment.
type envAction func(c *cli.Context, w Env) error

// Env is what a command works with: the endpoint, a client of it, and the console.
type Env struct {
	Endpoint
	Client *client.Client
	Out    *console.Console
}

// Command creates a command that checks its arguments and has a client.
func (g *Set) Command(v Verb, fn clientAction) *cli.Command {
	return g.CommandWithEnv(v, func(c *cli.Context, w Env) error { return fn(c, w.Client, w.Out) })
}

// CommandWithEnv is Command for commands that need more than a client, such as the
// target or the config file.
func (g *Set) CommandWithEnv(v Verb, fn envAction) *cli.Command {
	return g.WithoutClient(v, func(c *cli.Context) error {
		if v.ThisMachine {
			g.Local, g.API = true, ""
		}
		d, err := g.Endpoint()
		if err != nil {
			return err
		}
		api, err := g.Client(d)
		if err != nil {
			return err
		}
		return fn(c, Env{Endpoint: d, Client: api.Select(v.Labels, c.String("labels")), Out: g.Out})
	})
}

// WithoutClient creates a command that checks its arguments and needs no daemon.
func (g *Set) WithoutClient(v Verb, fn cli.ActionFunc) *cli.Command {
	if v.Labels != "" {
		v.Flags = append(v.Flags, &cli.StringFlag{Name: "labels", Usage: "List only resources that match this label `selector`, such as env=test,!draft"})
	}
	cmd := &cli.Command{
		HideHelpCommand: true, // an argument can be "help"
		Name:            v.Name, Usage: v.Usage, UsageText: v.usageLine(), ArgsUsage: v.Args, Description: wrap(v.About), Category: v.Category, Flags: v.Flags,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return v.withUsage(v.flagError(err)) },
		Action: func(c *cli.Context) error {
			if err := checkArgs(v, c.Args().Slice()); err != nil {
				return v.withUsage(err)
			}
			g.Out.JSON = c.Bool("json")
			return v.withUsage(fn(c))
		},
		BashComplete: g.Complete(v),
	}
	if v.Alias != "" {
		cmd.Aliases = []string{v.Alias}
	}
	return cmd
}

func checkArgs(v Verb, args []string) error {
	words := strings.Fields(v.Args)
	if strings.HasSuffix(v.Args, "...") && len(args) > len(words) {
		args = args[:len(words)] // any number
	}
	least := len(words)
	for _, w := range words {
		if strings.HasPrefix(w, "[") {
			least--
		}
	}
	switch {
	case len(args) < least:
		return console.UsageError("%s needs %s%s", v.Name, v.Args, namesAnApp(words))
	case len(args) > len(words) && len(words) == 0:
		return console.UsageError("%s takes no arguments, but got %q", v.Name, args[0])
	case len(args) > len(words):
		return console.UsageError("%s takes only %s, but got %q as well", v.Name, v.Args, args[len(words)])
	case slices.Contains(args[:least], ""):
		return console.UsageError("%s needs %s, but an argument is empty", v.Name, v.Args)
	}
	return nil
}

// namesAnApp is the advice on names of apps, if the first argument is one.
func namesAnApp(words []string) string {
	if len(words) > 0 && words[0] == "APP" {
		return " (APP is the name of an app: dew apps lists them)"
	}
	return ""
}
