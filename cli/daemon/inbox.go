package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// InboxCommands read notification mails.
func InboxCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "inbox", Args: "[ACTION] [NUMBER|ID]", Category: "Notifications", Usage: "Read notification mails, if dewd has no mail server",
			About: "ACTION is list (the default), show or wait. wait prints the first mail that matches the flags, even one that has already arrived. It exits with status 5 if none arrives in time.\n\n" +
				"Examples:\n   dew inbox --to jo@example.com\n   dew inbox show 2\n   dew inbox wait --kind password-reset --to jo@example.com --timeout 30s --json\n   dew inbox --open",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "to", Usage: "Only mails to this `address`, or to the user with this guid"},
				&cli.StringFlag{Name: "kind", Usage: "Only mails of this `kind` of notification"},
				&cli.StringFlag{Name: "subject", Usage: "Only mails with this `text` in the subject"},
				&cli.Uint64Flag{Name: "after", DefaultText: "none", Usage: "Only mails after the one with this `number`"},
				&cli.IntFlag{Name: "n", Value: 50, Usage: "List only the newest `count` mails; 0 lists all"},
				&cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: "Time limit of wait: a `duration` such as 30s"},
				command.BoolFlag("html", "Show the HTML part"),
				command.BoolFlag("open", "Print a link that opens the inbox in a browser, once"),
				command.JSONFlag(),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := inboxOptions{
				Action: c.Args().Get(0), ID: c.Args().Get(1), Timeout: c.Duration("timeout"), HTML: c.Bool("html"), Open: c.Bool("open"),
				Filter: client.MailFilter{
					To: c.String("to"), Kind: c.String("kind"), Subject: c.String("subject"), After: c.Uint64("after"), Limit: c.Int("n"),
				},
			}
			return runInbox(c.Context, o, api, out)
		}),
	}
}

type inboxOptions struct {
	Action  string
	ID      string
	Filter  client.MailFilter
	Timeout time.Duration
	HTML    bool
	Open    bool
}

func runInbox(ctx context.Context, o inboxOptions, api *client.Client, out *console.Console) error {
	if o.ID != "" && o.Action != "show" {
		return console.UsageError("inbox: %s takes no ID (did you mean dew inbox show %s?)", o.Action, o.ID)
	}
	switch {
	case o.Open && o.Action != "":
		return console.UsageError("inbox: --open cannot be used with an action")
	case o.Open:
		return openInbox(ctx, api, out)
	case o.Action == "", o.Action == "list":
		return listInbox(ctx, o.Filter, api, out)
	case o.Action == "show" && o.ID == "":
		return console.UsageError("inbox show needs the number or the ID of a mail: dew inbox lists them")
	case o.Action == "show":
		m, err := findMail(ctx, o.ID, api)
		if client.NotFound(err) {
			return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("the inbox has no mail %s", o.ID), Advice: "To list the mails: dew inbox"}
		}
		if err != nil {
			return err
		}
		return showMail(m, o.HTML, out)
	case o.Action == "wait":
		return waitInbox(ctx, o, api, out)
	}
	return console.UsageError("inbox: %q is not an action: use list, show or wait", o.Action)
}

// findMail returns the mail with an id, or with a number of the list.
func findMail(ctx context.Context, id string, api *client.Client) (v3.Mail, error) {
	number, err := strconv.ParseUint(id, 10, 64)
	if err != nil || number == 0 {
		return api.Daemon().Mail(ctx, id)
	}
	in, err := api.Daemon().Inbox(ctx, client.MailFilter{After: number - 1})
	if err != nil {
		return v3.Mail{}, err
	}
	for _, m := range in.Mails {
		if m.Seq == number {
			return api.Daemon().Mail(ctx, m.ID)
		}
	}
	return api.Daemon().Mail(ctx, id)
}

func openInbox(ctx context.Context, api *client.Client, out *console.Console) error {
	link, err := api.Daemon().InboxLink(ctx)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(v3.InboxLink{URL: link})
	}
	out.Say("This link works once, within five minutes:")
	fmt.Fprintln(out.Out, link)
	return nil
}

func listInbox(ctx context.Context, f client.MailFilter, api *client.Client, out *console.Console) error {
	in, err := api.Daemon().Inbox(ctx, f)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.Mail{}, in.Mails...))
	}
	if len(in.Mails) == 0 {
		out.Say("There are no mails")
		return nil
	}
	rows := [][]string{{"number", "id", "sent", "to", "kind", "subject"}}
	for _, m := range in.Mails {
		rows = append(rows, []string{fmt.Sprint(m.Seq), m.ID, m.Sent.Local().Format(time.DateTime), console.Printable(m.To), console.Printable(m.Kind), console.Printable(m.Subject)})
	}
	if more := in.Total - len(in.Mails); more > 0 {
		out.Say("%d older mails are not shown. To list all: dew inbox -n 0", more)
	}
	return out.Table(rows)
}

// waitInbox waits for a mail. If none arrives in time, the exit status is that of a
// timeout.
func waitInbox(ctx context.Context, o inboxOptions, api *client.Client, out *console.Console) error {
	if o.Timeout <= 0 {
		return console.UsageError("inbox: --timeout must be greater than 0, such as 30s")
	}
	late := &console.Failure{Status: console.StatusTimeout, Err: fmt.Errorf("no matching mail arrived within %s", o.Timeout), Advice: "To list the mails: dew inbox"}
	bounded, cancel := context.WithTimeoutCause(ctx, o.Timeout, late)
	defer cancel()
	m, err := api.Daemon().WaitForMail(bounded, o.Filter)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), late) {
		return late
	}
	if err != nil {
		return err
	}
	return showMail(m, o.HTML, out)
}

// showMail prints a mail without its control characters, which a terminal would execute.
func showMail(m v3.Mail, html bool, out *console.Console) error {
	if out.JSON {
		return out.Encode(m)
	}
	for _, h := range [][2]string{
		{"id", m.ID},
		{"sent", m.Sent.Local().Format(console.LineTime)},
		{"from", m.From},
		{"to", m.To},
		{"reply to", m.ReplyTo},
		{"client", m.Client},
		{"kind", m.Kind},
		{"subject", m.Subject},
	} {
		if h[1] != "" {
			fmt.Fprintf(out.Out, "%-9s %s\n", h[0]+":", console.Printable(h[1]))
		}
	}
	body := m.Text
	if html || body == "" {
		body = m.HTML
	}
	fmt.Fprintln(out.Out)
	for line := range strings.Lines(body) {
		fmt.Fprintln(out.Out, console.Printable(strings.TrimRight(line, "\r\n")))
	}
	return nil
}
