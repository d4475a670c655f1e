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
	"github.com/dewrun/dew/cli/console"
)

// global is what all commands share.
type global struct {
	run   string   // folder of the local daemon's run-time files
	api   string   // URL that was given for this command
	local bool     // --run was given: nothing but the socket is meant
	typed []string // the command line
	out   *console.Console

	version  string
	complete func(verb) cli.BashCompleteFunc // offers words for the next place of the command line
}

// verb describes a command. Args are its arguments as help shows them; those in
// brackets may be left out.
type verb struct {
	name, alias, args string
	usage             string
	about             string
	category          string
	flags             []cli.Flag
	labels            string // path of what it lists, where --labels chooses among it
	here              bool   // it asks the daemon of this machine, whatever dew is logged in to
}

// do runs a command that asks the daemon.
type do func(c *cli.Context, ask *client.Client, out *console.Console) error

// at runs a command that also wants to know where it asks.
type at func(c *cli.Context, w where) error

// where is what a command works with: the door it goes through, a client of what
// is behind it, and the console.
type where struct {
	door
	ask *client.Client
	out *console.Console
}

// command makes the verb a command that checks its arguments and has a client.
func (g *global) command(v verb, fn do) *cli.Command {
	return g.commandAt(v, func(c *cli.Context, w where) error { return fn(c, w.ask, w.out) })
}

// commandAt is command for what also changes what dew remembers.
func (g *global) commandAt(v verb, fn at) *cli.Command {
	return g.plain(v, func(c *cli.Context) error {
		if v.here {
			g.local, g.api = true, ""
		}
		d, err := g.door()
		if err != nil {
			return err
		}
		ask, err := g.open(d)
		if err != nil {
			return err
		}
		return fn(c, where{door: d, ask: ask.Select(v.labels, c.String("labels")), out: g.out})
	})
}

// plain makes the verb a command that checks its arguments.
func (g *global) plain(v verb, fn cli.ActionFunc) *cli.Command {
	if v.labels != "" {
		v.flags = append(v.flags, &cli.StringFlag{Name: "labels", Usage: "only those with such labels (`selector`, such as env=test,!draft)"})
	}
	cmd := &cli.Command{
		Name: v.name, Usage: v.usage, UsageText: v.usageLine(), ArgsUsage: v.args, Description: wrap(v.about), Category: v.category, Flags: v.flags,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return v.withUsage(v.flagError(err)) },
		Action: func(c *cli.Context) error {
			if err := checkArgs(v, c.Args().Slice()); err != nil {
				return v.withUsage(err)
			}
			g.out.JSON = c.Bool("json")
			return v.withUsage(fn(c))
		},
		BashComplete: g.complete(v),
	}
	if v.alias != "" {
		cmd.Aliases = []string{v.alias}
	}
	return cmd
}

// helpWidth is how long a line of help may be, beside its margin.
const helpWidth = 76

// wrap breaks long lines of help. What begins with a space is an example or a
// table and stays as it is.
func wrap(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			lines[i] = fold(line)
		}
	}
	return strings.Join(lines, "\n")
}

func fold(line string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(line) {
		switch {
		case column == 0:
		case column+1+len(word) > helpWidth:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func checkArgs(v verb, args []string) error {
	words := strings.Fields(v.args)
	if strings.HasSuffix(v.args, "...") && len(args) > len(words) {
		args = args[:len(words)] // as many as one likes
	}
	least := len(words)
	for _, w := range words {
		if strings.HasPrefix(w, "[") {
			least--
		}
	}
	switch {
	case len(args) < least:
		return console.UsageError("%s needs %s%s", v.name, v.args, namesAnApp(words))
	case len(args) > len(words) && len(words) == 0:
		return console.UsageError("%s takes no arguments, and there is %q", v.name, args[0])
	case len(args) > len(words):
		return console.UsageError("%s takes %s and nothing behind it, and there is %q", v.name, v.args, args[len(words)])
	case slices.Contains(args[:least], ""):
		return console.UsageError("%s needs %s, and one of them is empty", v.name, v.args)
	}
	return nil
}

// namesAnApp says where to find the name of an app, if the first argument is one.
func namesAnApp(words []string) string {
	if len(words) > 0 && words[0] == "APP" {
		return " (APP is the name of an app: dew apps lists them)"
	}
	return ""
}

// boolFlag is a flag without a value; its help does not say that it is off.
func boolFlag(name, about string) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: about, DisableDefaultText: true}
}

func jsonFlag() cli.Flag { return boolFlag("json", "write the data as JSON to stdout") }

// findApp finds an app by name; the error offers a name that is near.
func findApp(ctx context.Context, ask *client.Client, name string) (v3.App, error) {
	a, err := ask.Apps().ByName(ctx, name)
	missing := (*client.NoApp)(nil)
	if !errors.As(err, &missing) {
		return a, err
	}
	all, lerr := ask.Apps().List(ctx)
	if lerr != nil {
		return a, lerr
	}
	return a, hint(missing, name, all, func(a v3.App) string { return a.Name })
}

// hint adds a name that is near to the error that says that there is none such.
func hint[T any](missing error, name string, all []T, nameOf func(T) string) error {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = nameOf(one)
	}
	if near := nearest(name, names); near != "" {
		return &console.Failure{Status: console.StatusFailed, Err: missing, Todo: fmt.Sprintf("did you mean %q?", near)}
	}
	return missing
}

// space is where apps live.
func space(ctx context.Context, ask *client.Client) (string, error) { return ask.Here(ctx) }
