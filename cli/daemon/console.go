package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// ConsoleCommands open the web console.
func ConsoleCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "console", Args: "[ACTION] [ID]", Category: "Apps", Usage: "Open the web console in a browser",
			About: "ACTION is open (the default), sessions or revoke. open prints a link and opens it in the program in BROWSER, or with xdg-open. Without a display (DISPLAY and WAYLAND_DISPLAY are empty) it only prints the link. " +
				"The link works once and for 60 s. It opens the console with your permissions; over the socket, those of the user admin. sessions lists the browsers that are logged in, and revoke logs one of them out.\n\n" +
				"Examples:\n   dew console\n   dew console --print\n   dew console sessions\n   dew console revoke 9f86d081884c7d65",
			Flags: []cli.Flag{command.BoolFlag("print", "Print the link without opening a browser"), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runConsole(c.Context, consoleOptions{Action: c.Args().Get(0), ID: c.Args().Get(1), Print: c.Bool("print")}, api, out)
		}),
	}
}

type consoleOptions struct {
	Action string
	ID     string
	Print  bool
}

func runConsole(ctx context.Context, o consoleOptions, api *client.Client, out *console.Console) error {
	opens := o.Action == "" || o.Action == "open"
	switch {
	case o.ID != "" && (opens || o.Action == "sessions"):
		return console.UsageError("console: %s takes no ID (did you mean dew console revoke %s?)", o.Action, o.ID)
	case o.Print && !opens:
		return console.UsageError("console: --print cannot be used with %s", o.Action)
	case opens:
		return openConsole(ctx, o.Print, api, out)
	case o.Action == "sessions":
		return listConsoleSessions(ctx, api, out)
	case o.Action == "revoke" && o.ID == "":
		return console.UsageError("console revoke needs the ID of a session: dew console sessions lists them")
	case o.Action == "revoke":
		return revokeConsoleSession(ctx, o.ID, api, out)
	}
	return console.UsageError("console: %q is not an action: use open, sessions or revoke", o.Action)
}

// openConsole prints a link to the console and opens it. The output for programs is only
// printed.
func openConsole(ctx context.Context, onlyPrint bool, api *client.Client, out *console.Console) error {
	link, err := api.Daemon().ConsoleLink(ctx)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(link)
	}
	out.Say("This link opens the web console. It works once and for 60 s:")
	fmt.Fprintln(out.Out, link.URL)
	if onlyPrint {
		return nil
	}
	if _, err := command.OpenBrowser(link.URL); err != nil {
		out.Warn(fmt.Sprintf("cannot open a browser: %v", err))
	}
	return nil
}

func listConsoleSessions(ctx context.Context, api *client.Client, out *console.Console) error {
	found, err := api.Daemon().ConsoleSessions(ctx)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.ConsoleSession{}, found...))
	}
	if len(found) == 0 {
		out.Say("No browser is logged in to the console. To open it: dew console")
		return nil
	}
	rows := [][]string{{"id", "user", "logged in", "last used", "browser"}}
	for _, s := range found {
		rows = append(rows, []string{
			s.ID, console.Printable(s.User.Name), s.CreatedAt.Local().Format(time.DateTime), s.LastUsedAt.Local().Format(time.DateTime), console.Printable(s.UserAgent),
		})
	}
	return out.Table(rows)
}

func revokeConsoleSession(ctx context.Context, id string, api *client.Client, out *console.Console) error {
	err := api.Daemon().EndConsoleSession(ctx, id)
	if client.NotFound(err) {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("there is no console session %s", id), Advice: "To list the sessions: dew console sessions"}
	}
	if err != nil {
		return err
	}
	out.Say("The console session %s has ended", id)
	return nil
}
