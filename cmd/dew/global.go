package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// global is what all commands share.
type global struct {
	run string
	out *console
}

// connect gives a client of the daemon; nothing is asked yet.
func (g *global) connect() (*client.Client, error) {
	return client.New(client.Options{Run: g.run, UserAgent: "dew/" + version, Warn: g.out.warn})
}

// verb describes a command. Args are its arguments as help shows them; those in
// brackets may be left out.
type verb struct {
	name, alias, args string
	usage             string
	about             string
	category          string
	flags             []cli.Flag
}

// do runs a command that asks the daemon.
type do func(c *cli.Context, ask *client.Client, out *console) error

// command makes the verb a command that checks its arguments and has a client.
func (g *global) command(v verb, fn do) *cli.Command {
	cmd := &cli.Command{
		Name: v.name, Usage: v.usage, ArgsUsage: v.args, Description: v.about, Category: v.category, Flags: v.flags,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return usage("%s: %w", v.name, err) },
		Action: func(c *cli.Context) error {
			if err := checkArgs(v, c.Args().Slice()); err != nil {
				return err
			}
			ask, err := g.connect()
			if err != nil {
				return err
			}
			g.out.json = c.Bool("json")
			return fn(c, ask, g.out)
		},
	}
	if v.alias != "" {
		cmd.Aliases = []string{v.alias}
	}
	if strings.HasPrefix(v.args, "APP") || strings.HasPrefix(v.args, "[APP") {
		cmd.BashComplete = g.completeApp
	}
	return cmd
}

func checkArgs(v verb, args []string) error {
	words := strings.Fields(v.args)
	least := len(words)
	for _, w := range words {
		if strings.HasPrefix(w, "[") {
			least--
		}
	}
	switch {
	case len(args) < least:
		return usage("%s needs %s", v.name, v.args)
	case len(args) > len(words) && len(words) == 0:
		return usage("%s takes no arguments, and there is %q", v.name, args[0])
	case len(args) > len(words):
		return usage("%s takes %s and nothing behind it, and there is %q", v.name, v.args, args[len(words)])
	case slices.Contains(args[:least], ""):
		return usage("%s needs %s, and one of them is empty", v.name, v.args)
	}
	return nil
}

// completeApp offers the names of apps, then the flags.
func (g *global) completeApp(c *cli.Context) {
	if c.NArg() == 0 {
		if ask, err := g.connect(); err == nil {
			apps, _ := ask.Apps(c.Context) // a daemon that is not there has no names to offer
			for _, a := range apps {
				fmt.Fprintln(c.App.Writer, a.Name)
			}
		}
	}
	cli.DefaultCompleteWithFlags(c.Command)(c)
}

// boolFlag is a flag without a value; its help does not say that it is off.
func boolFlag(name, about string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: about, DisableDefaultText: true}
}

func jsonFlag() cli.Flag { return boolFlag("json", "write the data as JSON to stdout") }

// findApp finds an app by name; the error offers a name that is near.
func findApp(ctx context.Context, ask *client.Client, name string) (v3.App, error) {
	a, err := ask.AppByName(ctx, name)
	missing := (*client.NoApp)(nil)
	if !errors.As(err, &missing) {
		return a, err
	}
	all, lerr := ask.Apps(ctx)
	if lerr != nil {
		return a, lerr
	}
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.Name
	}
	if near := nearest(name, names); near != "" {
		return a, &failure{status: statusFailed, err: missing, todo: fmt.Sprintf("did you mean %q?", near)}
	}
	return a, missing
}

// space is where apps live: there is one until there are more.
func space(ctx context.Context, ask *client.Client) (string, error) {
	all, err := ask.Spaces(ctx)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", errors.New("the daemon has no space for apps: it makes one at its first start, and its log says why it could not")
	}
	return all[0].GUID, nil
}
