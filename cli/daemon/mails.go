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

// MailCommands show the queue of mails.
func MailCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "mails", Args: "[MAIL_ID]...", Category: "Notifications", Usage: "List mails that wait for delivery or failed, and retry them",
			About: "Failed mails are listed for one day. --retry queues failed mails again and tries waiting ones now: those with the given IDs, or all that the other flags select.\n\n" +
				"Examples:\n   dew mails\n   dew mails --failed --json\n   dew mails --failed --retry\n   dew mails --retry 0193a5c2-7d1e-7000-8000-000000000001",
			Flags: []cli.Flag{
				command.BoolFlag("failed", "Only mails that failed"),
				command.BoolFlag("waiting", "Only mails that wait for an attempt"),
				command.BoolFlag("retry", "Queue failed mails again, and try waiting ones now"),
				&cli.IntFlag{Name: "limit", Value: 50, Usage: "List at most `count` mails; 0 lists all"},
				command.JSONFlag(),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := mailOptions{IDs: c.Args().Slice(), Failed: c.Bool("failed"), Waiting: c.Bool("waiting"), Retry: c.Bool("retry"), Limit: c.Int("limit")}
			return runMails(c.Context, o, api, out)
		}),
	}
}

type mailOptions struct {
	IDs                    []string
	Failed, Waiting, Retry bool
	Limit                  int
}

// state is the state that the flags select; empty: all.
func (o mailOptions) state() string {
	switch {
	case o.Failed == o.Waiting:
		return ""
	case o.Failed:
		return "failed"
	}
	return "waiting"
}

func runMails(ctx context.Context, o mailOptions, api *client.Client, out *console.Console) error {
	switch {
	case len(o.IDs) > 0 && !o.Retry:
		return console.UsageError("mails: an ID needs --retry")
	case len(o.IDs) > 0 && (o.Failed || o.Waiting):
		return console.UsageError("mails: --failed and --waiting cannot be used with an ID")
	case o.Limit < 0:
		return console.UsageError("mails: --limit must be 0 or greater")
	case o.Retry:
		return retryMails(ctx, o, api, out)
	}
	in, err := api.Daemon().QueuedMails(ctx, o.state(), o.Limit)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.QueuedMail{}, in.Mails...))
	}
	if len(in.Mails) == 0 {
		out.Say("No mail %s", map[string]string{"": "waits for delivery, and none failed within the last day", "failed": "failed within the last day", "waiting": "waits for delivery"}[o.state()])
		return nil
	}
	rows := [][]string{{"id", "to", "kind", "client", "state", "attempts", "next attempt", "last answer"}}
	for _, m := range in.Mails {
		to, next := m.To, ""
		if to == "" {
			to = "user " + m.User
		}
		if !m.NextAttempt.IsZero() {
			next = m.NextAttempt.Local().Format(time.DateTime)
		}
		rows = append(rows, []string{
			m.ID, console.Printable(to), console.Printable(m.Kind), console.Printable(m.Client), m.State, fmt.Sprint(m.Attempts), next, console.Printable(m.LastAnswer),
		})
	}
	if more := in.Total - len(in.Mails); more > 0 {
		out.Say("Not shown: %s. To list all: dew mails --limit 0", mailCount(more))
	}
	return out.Table(rows)
}

func retryMails(ctx context.Context, o mailOptions, api *client.Client, out *console.Console) error {
	n, err := api.Daemon().RetryMails(ctx, v3.RetryMails{IDs: o.IDs, State: o.state()})
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(v3.RetriedMails{Retried: n})
	}
	out.Say("dewd tries %s now", mailCount(n))
	return nil
}

func mailCount(n int) string {
	if n == 1 {
		return "1 mail"
	}
	return fmt.Sprintf("%d mails", n)
}

// mailQueueText describes the queue of mails in one line.
func mailQueueText(q *v3.MailQueue) string {
	if q == nil { // an older daemon
		return ""
	}
	text := fmt.Sprintf("%d waiting, %d retrying, %d failed within the last day", q.Queued, q.Retrying, q.Failed)
	if !q.StalledSince.IsZero() {
		text += fmt.Sprintf("; none was delivered since %s (dew mails shows why)", q.StalledSince.Local().Format(time.DateTime))
	}
	return text
}
