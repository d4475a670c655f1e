package apps

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// ScaleOptions are the new sizes of a process. Empty ones do not change.
type ScaleOptions struct {
	Name      string
	Process   string
	Instances *int
	Memory    string
	Disk      string
	LogRate   string
	Force     bool
}

// ScaleCommands change instances, memory and disk of a process.
func ScaleCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.Command(command.Verb{
		Name: "scale", Args: "APP", Category: "Apps", Usage: "Change the instance count, memory limit, disk limit or log rate limit of an app; without flags show them",
		About: "Examples:\n   dew scale shop -i 3\n   dew scale shop -m 512M -f\n   dew scale shop --process worker -i 0",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "i", Aliases: []string{"instances"}, DefaultText: "unchanged", Usage: "Instance `count`"},
			&cli.StringFlag{Name: "m", Usage: "Memory limit of an instance, sidecars included: a `size` such as 256M; restarts the app"},
			&cli.StringFlag{Name: "k", Usage: "Disk limit of an instance: a `size` such as 512M; restarts the app"},
			&cli.StringFlag{Name: "l", Usage: "Log rate limit of an instance in `bytes` per second, such as 16K; -1 for no limit; restarts the app"},
			&cli.BoolFlag{Name: "f", Aliases: []string{"force"}, Usage: "Do not ask for confirmation before a restart", DisableDefaultText: true},
			&cli.StringFlag{Name: "process", Value: "web", Usage: "Process `type`"},
			command.JSONFlag(),
		},
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		o := ScaleOptions{Name: c.Args().First(), Process: c.String("process"), Memory: c.String("m"), Disk: c.String("k"), LogRate: c.String("l"), Force: c.Bool("f")}
		if c.IsSet("i") {
			n := c.Int("i")
			o.Instances = &n
		}
		return runScale(c.Context, o, api, out)
	})}
}

func runScale(ctx context.Context, o ScaleOptions, api *client.Client, out *console.Console) error {
	body, err := o.Body()
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	if body == (v3.Scale{}) {
		return runApp(ctx, appOptions{Name: o.Name}, api, out)
	}
	restart := a.State == v3.AppStarted && (body.MemoryInMB != nil || body.DiskInMB != nil || body.LogRateLimit != nil)
	if restart && !o.Force {
		if yes, err := out.Confirm(ctx, "Scale and restart app "+a.Name); err != nil || !yes {
			return err
		}
	}
	if _, err := api.Processes().Scale(ctx, a.GUID, o.Process, body); err != nil {
		return fmt.Errorf("cannot scale process %s of %s: %w", o.Process, a.Name, err)
	}
	out.Say("Scaled app %s", a.Name)
	if restart {
		return ActAndShow(ctx, a, client.Restart, api, out)
	}
	if a.State == v3.AppStarted {
		if err := WaitRunning(ctx, a, api, out); err != nil {
			return err
		}
	}
	return runApp(ctx, appOptions{Name: o.Name}, api, out)
}

// Body is the request body for the options.
func (o ScaleOptions) Body() (v3.Scale, error) {
	var s v3.Scale
	if o.Instances != nil {
		if *o.Instances < 0 {
			return s, console.UsageError("-i: %d is less than 0", *o.Instances)
		}
		n := v3.Int(*o.Instances)
		s.Instances = &n
	}
	for _, size := range []struct {
		flag, text string
		mb         **v3.Int
	}{{"-m", o.Memory, &s.MemoryInMB}, {"-k", o.Disk, &s.DiskInMB}} {
		if size.text == "" {
			continue
		}
		mb, err := app.ParseMB(size.text)
		if err != nil {
			return s, console.UsageError("%s: %w", size.flag, err)
		}
		n := v3.Int(mb)
		*size.mb = &n
	}
	rate, err := ReadRate(o.LogRate)
	s.LogRateLimit = rate
	return s, err
}

// ReadRate reads the flag -l. It is nil if text is empty.
func ReadRate(text string) (*v3.Int, error) {
	if text == "" {
		return nil, nil
	}
	rate, err := app.ParseRate(text)
	if err != nil {
		return nil, console.UsageError("-l: %w", err)
	}
	n := v3.Int(rate)
	return &n, nil
}
