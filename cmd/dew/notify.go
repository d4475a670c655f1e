package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

func notifyCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{
			name: "notify-on-crash", args: "APP", category: "Notifications", usage: "send a mail to those who work in the app's space when an instance crashes",
			about: "With --off it ends; with --show it only tells. Who does not want these mails unsubscribes from them.\n\nExamples:\n   dew notify-on-crash shop\n   dew notify-on-crash shop --off",
			flags: []cli.Flag{boolFlag("off", "send no more"), boolFlag("show", "only tell whether it is on"), jsonFlag()},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			o := crashMailOptions{Name: c.Args().First(), Off: c.Bool("off"), Show: c.Bool("show")}
			return runNotifyOnCrash(c.Context, o, ask, out)
		}),
	}
}

type crashMailOptions struct {
	Name      string
	Off, Show bool
}

func runNotifyOnCrash(ctx context.Context, o crashMailOptions, ask *client.Client, out *console.Console) error {
	if o.Off && o.Show {
		return console.UsageError("notify-on-crash: --off and --show exclude each other")
	}
	a, err := findApp(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	on := !o.Off
	if o.Show {
		on, err = ask.Apps().CrashMails(ctx, a.GUID)
	} else {
		err = ask.Apps().SetCrashMails(ctx, a.GUID, on)
	}
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(v3.CrashMails{Enabled: on})
	}
	if on {
		out.Say("dew sends a mail when %s crashes", a.Name)
	} else {
		out.Say("dew sends no mail when %s crashes", a.Name)
	}
	return nil
}
