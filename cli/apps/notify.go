package apps

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// NotifyCommands turn mails about crashes on and off.
func NotifyCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "notify-on-crash", Args: "APP", Category: "Notifications", Usage: "send a mail to those who work in the app's space when an instance crashes",
			About: "With --off it ends; with --show it only tells. Who does not want these mails unsubscribes from them.\n\nExamples:\n   dew notify-on-crash shop\n   dew notify-on-crash shop --off",
			Flags: []cli.Flag{command.BoolFlag("off", "send no more"), command.BoolFlag("show", "only tell whether it is on"), command.JSONFlag()},
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
	a, err := command.FindApp(ctx, ask, o.Name)
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
