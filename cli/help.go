package cli

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// basicCommands are the commands that `dew` without arguments prints. They are enough to
// push an app, see its status and find out why it does not work.
var basicCommands = [][2]string{
	{"push", "Push the app in this folder and wait until it runs"},
	{"apps", "List your apps and their URLs"},
	{"app", "Show an app's instances, memory, sidecars, routes and last crash"},
	{"ps", "List the running processes and sidecars of all apps"},
	{"top", "Watch the state, CPU and memory of all instances"},
	{"open", "Open an app in the browser, or print its URL"},
	{"logs", "Show or follow the logs of an app and its sidecars"},
	{"crashes", "Show why instances of an app crashed"},
	{"ssh", "Open a shell in an instance"},
	{"restart", "Restart an app and wait until it runs"},
	{"stop", "Stop an app"},
	{"delete", "Delete an app"},
	{"create-service", "Create a database for your apps"},
	{"smoke", "Push the apps of a folder, check that they work, clean up"},
}

// showBasicCommands prints the commands that a new user needs, and how to list the others.
func showBasicCommands(c *cli.Context) error {
	var b strings.Builder
	b.WriteString("dew runs Cloud Foundry style apps and their sidecars on this machine.\n\n")
	for _, e := range basicCommands {
		fmt.Fprintf(&b, "  dew %-16s%s\n", e[0], e[1])
	}
	others := -len(basicCommands)
	for range c.App.VisibleCommands() {
		others++
	}
	fmt.Fprintf(&b, "\nTo list the other %d commands: dew help\nTo list the flags of a command: dew push --help\n", others)
	_, err := fmt.Fprint(c.App.Writer, b.String())
	return err
}

func helpCommands(g *command.Set) []*cli.Command {
	help := g.WithoutClient(command.Verb{
		Name: "help", Alias: "h", Args: "[COMMAND]", Category: categoryStart, Usage: "List all commands, or show the help of one command",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "List all commands (the default)", DisableDefaultText: true}},
	}, func(c *cli.Context) error {
		top := c.Lineage()[1]
		name := c.Args().First()
		if name == "" {
			return cli.ShowAppHelp(top)
		}
		if c.App.Command(name) == nil {
			return noSuchCommand(c.App, name)
		}
		return cli.ShowCommandHelp(top, name)
	})
	help.BashComplete = func(c *cli.Context) {
		for _, cmd := range c.App.VisibleCommands() {
			fmt.Fprintln(c.App.Writer, cmd.Name)
		}
	}
	return []*cli.Command{help}
}

// noSuchCommand is the error for an unknown command. It suggests the nearest name, but
// never a command that deletes or stops something.
func noSuchCommand(a *cli.App, given string) error {
	var names []string
	for _, cmd := range a.VisibleCommands() {
		if !isDestructive(cmd.Name) {
			names = append(names, cmd.Names()...)
		}
	}
	f := &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("command %q does not exist", given), Advice: "To list the basic commands: dew. To list all commands: dew help"}
	if near := command.Nearest(given, names); near != "" {
		f.Err = fmt.Errorf("command %q does not exist: did you mean %q?", given, near)
	}
	return f
}

// isDestructive reports whether a command deletes data or stops something. dew does not
// suggest it for a mistyped command.
func isDestructive(name string) bool {
	for _, prefix := range []string{"delete", "purge", "unbind", "unset", "unshare", "unmap", "disable", "cleanup"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"shutdown", "kill", "stop", "terminate-task", "cancel-deployment", "service-restore", "rollback"}, name)
}

// globalUsageError is an error in the flags before the command.
func globalUsageError(err error) error {
	return &console.Failure{Status: console.StatusUsage, Err: err, Advice: "usage: " + usageText + "\n     To list the basic commands: dew. To list all commands: dew help"}
}

// exitStatuses explains the exit statuses.
const exitStatuses = `   0  success
   1  failed
   2  usage error: a wrong command, argument, flag or value
   3  staging failed
   4  the app crashed while starting, or dew refused to start it
   5  timed out, or the app did not become healthy
   6  cannot connect to the daemon
   7  the app ran out of memory while starting
   8  a check of dew smoke failed
   9  infrastructure: this machine lacks a requirement (to see which: dew doctor)
 130  interrupted by Ctrl-C (143: by SIGTERM); dewd continues a push, and dew says how to follow it`

// categoryStart has the first commands that a new user needs, as in cf.
const categoryStart = "Getting started"

// categories are the categories in the order of the help. The first ones are for new
// users. Others come between these and the last ones, in alphabetical order.
var categories = struct{ first, last []string }{
	first: []string{
		categoryStart, "Login", "Push", "Apps", "Logs and crashes", "Environment variables", "SSH", "Tasks",
		"Services", "Routes and domains", "Routes", "Domains", "Orgs and spaces", "Orgs", "Spaces", "Users", "User admin",
	},
	last: []string{"Daemon", "Advanced"},
}

// helpFlag replaces the one of urfave/cli, whose text starts with a small letter.
var helpFlag = func() cli.Flag {
	cli.HelpFlag = sharedFlag{&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "Show help", DisableDefaultText: true}}
	return cli.HelpFlag
}()

// sharedFlag is a flag of many commands. Its Apply does not change it, so that several
// command lines can be parsed at the same time.
type sharedFlag struct{ *cli.BoolFlag }

// Apply adds a copy of the flag to a set.
func (f sharedFlag) Apply(set *flag.FlagSet) error {
	own := *f.BoolFlag
	return own.Apply(set)
}

// appHelp is the template of the help of dew. It is like the one of urfave/cli, with
// the categories in their order and with the exit statuses at the end.
func appHelp(commands []*cli.Command) string {
	const before, after = `NAME:
   {{.Name}} - {{.Usage}}

USAGE:
   {{.UsageText}}

DESCRIPTION:
   {{wrap .Metadata.about 3}}

COMMANDS:`, `

GLOBAL OPTIONS:{{template "visibleFlagTemplate" .}}

EXIT STATUS:
{{.Metadata.exit}}
`
	byCategory := map[string][]*cli.Command{}
	for _, c := range commands {
		if !c.Hidden {
			byCategory[c.Category] = append(byCategory[c.Category], c)
		}
	}
	names := slices.Sorted(maps.Keys(byCategory))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(categoryRank(a), categoryRank(b)) })
	var b strings.Builder
	b.WriteString(before)
	for _, name := range names {
		fmt.Fprintf(&b, "\n   %s:", name)
		for _, c := range byCategory[name] {
			fmt.Fprintf(&b, "\n     %s\t%s", strings.Join(c.Names(), ", "), c.Usage)
		}
	}
	return b.String() + after
}

// categoryRank is the position of a category in the help.
func categoryRank(name string) int {
	if i := slices.Index(categories.first, name); i >= 0 {
		return i
	}
	return len(categories.first) + 1 + slices.Index(categories.last, name)
}
