package apps

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// NotifyCommands enable and disable mails about crashes.
func NotifyCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "notify-on-crash", Args: "APP", Category: "Notifications", Usage: "Email the users of the app's space when an instance crashes",
			About: "--off disables these emails, and --show shows whether they are enabled. Each user can unsubscribe from them.\n\nExamples:\n   dew notify-on-crash shop\n   dew notify-on-crash shop --off",
			Flags: []cli.Flag{command.BoolFlag("off", "Disable the emails"), command.BoolFlag("show", "Only show whether the emails are enabled"), command.JSONFlag()},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := crashMailOptions{Name: c.Args().First(), Off: c.Bool("off"), Show: c.Bool("show")}
			return runNotifyOnCrash(c.Context, o, api, out)
		}),
	}
}

type crashMailOptions struct {
	Name      string
	Off, Show bool
}

func runNotifyOnCrash(ctx context.Context, o crashMailOptions, api *client.Client, out *console.Console) error {
	if o.Off && o.Show {
		return console.UsageError("notify-on-crash: --off and --show cannot be used together")
	}
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	on := !o.Off
	if o.Show {
		on, err = api.Apps().CrashMails(ctx, a.GUID)
	} else {
		err = api.Apps().SetCrashMails(ctx, a.GUID, on)
	}
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(v3.CrashMails{Enabled: on})
	}
	if on {
		out.Say("dew will email the users of the space when %s crashes", a.Name)
	} else {
		out.Say("dew will not send emails when %s crashes", a.Name)
	}
	return nil
}
