package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// everyday are the commands that `dew` alone prints: enough to push an app, look
// at it and find out why it does not work.
var everyday = [][2]string{
	{"push", "push the app in this folder and wait until it runs"},
	{"ps", "list the running processes and sidecars of all apps"},
	{"app", "show one app: instances, memory, sidecars, routes, last crash"},
	{"open", "open an app in the browser, or print its URL"},
	{"logs", "show what an app and its sidecars print"},
	{"crashes", "show why instances of an app crashed"},
	{"ssh", "open a shell inside an instance"},
	{"restart", "restart an app and wait until it runs"},
	{"stop", "stop an app"},
	{"create-service", "create a database for your apps"},
	{"smoke", "push the apps of a folder, check that they work, clean up"},
}

// showEveryday prints the commands that a newcomer needs, and where the others are.
func showEveryday(c *cli.Context) error {
	var b strings.Builder
	b.WriteString("dew runs Cloud Foundry style apps and their sidecars on this machine.\n\n")
	for _, e := range everyday {
		fmt.Fprintf(&b, "  dew %-16s%s\n", e[0], e[1])
	}
	others := -len(everyday)
	for range c.App.VisibleCommands() {
		others++
	}
	fmt.Fprintf(&b, "\nThe other %d commands: dew help\nThe flags of a command: dew push --help\n", others)
	_, err := fmt.Fprint(c.App.Writer, b.String())
	return err
}

func helpCommands(g *command.Set) []*cli.Command {
	help := g.WithoutClient(command.Verb{
		Name: "help", Alias: "h", Args: "[COMMAND]", Category: "Help", Usage: "list all commands, or show the help of one command",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "list all commands, as without it", DisableDefaultText: true}},
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

// noSuchCommand is the error for a name that is no command, with the nearest one.
func noSuchCommand(a *cli.App, asked string) error {
	var names []string
	for _, cmd := range a.VisibleCommands() {
		names = append(names, cmd.Names()...)
	}
	f := &console.Failure{Status: console.StatusUsage, Err: fmt.Errorf("there is no command %q", asked), Advice: "dew lists the everyday commands, dew help lists all"}
	if near := command.Nearest(asked, names); near != "" {
		f.Err = fmt.Errorf("there is no command %q: did you mean %q?", asked, near)
	}
	return f
}

// globalUsageError is an error in the flags before the command.
func globalUsageError(err error) error {
	return &console.Failure{Status: console.StatusUsage, Err: err, Advice: "usage: " + usageText + "\n     dew lists the everyday commands, dew help lists all"}
}

// statusHelp explains the exit statuses.
const statusHelp = `Exit status:
   0  ok
   1  failed
   2  usage: a flag, its value, an argument or a command is wrong
   3  staging failed
   4  the app crashed at its start, or was refused to start
   5  timed out, or the app never became healthy
   6  the daemon cannot be reached
   7  the app ran out of memory at its start
   8  an assertion does not hold
   9  infrastructure: something the machine should give is not there; dew doctor tells what
 130  interrupted by Ctrl-C (143: by SIGTERM); dew push says what goes on in the daemon`
