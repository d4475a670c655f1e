package shell

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// crashedFlags choose a crashed instance instead of a running one.
func crashedFlags() []cli.Flag {
	return []cli.Flag{
		command.BoolFlag("crashed", "Use a copy of the files of the newest crashed instance; none of its processes run"),
		&cli.IntFlag{Name: "crash", DefaultText: "none", Usage: "Use the crash with this `number`; 1 is the newest crash in dew crashes; implies --crashed"},
	}
}

// crashedChoice is the value of these flags.
type crashedChoice struct {
	requested bool
	number    int    // 1 is the newest, 0 the newest one with stored files
	process   string // type, or empty for any
	index     int    // -1 for any
}

func crashedOf(c *cli.Context) (crashedChoice, error) {
	w := crashedChoice{requested: c.Bool("crashed") || c.IsSet("crash"), number: c.Int("crash"), index: -1}
	if c.IsSet("crash") && w.number < 1 {
		return w, console.UsageError("--crash: %d is less than 1", w.number)
	}
	if c.IsSet("process") {
		w.process = c.String("process")
	}
	if c.IsSet("i") {
		w.index = c.Int("i")
	}
	if w.requested && (c.Bool("N") || len(c.StringSlice("L")) > 0) {
		return w, console.UsageError("cannot forward ports to a crashed instance: none of its processes run")
	}
	return w, nil
}

// crashedLogin is the SSH user name for the files of a crashed instance.
func crashedLogin(ctx context.Context, in Location, api *client.Client) (string, error) {
	a, err := command.FindApp(ctx, api, in.App)
	if err != nil {
		return "", err
	}
	crashes, err := api.Processes().Crashes(ctx, a.GUID)
	if err != nil {
		return "", err
	}
	c, err := chooseCrash(crashes, in.crashed)
	if err != nil {
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s: %w", a.Name, err), Advice: "To see which crashes have files: dew crashes " + a.Name}
	}
	user := "cf:" + c.Process + "/crashed-" + c.Instance
	if in.sidecar != "" {
		user += "/" + in.sidecar
	}
	return user, nil
}

// chooseCrash finds the chosen crash. crashes are newest first.
func chooseCrash(crashes []v3.Crash, w crashedChoice) (v3.Crash, error) {
	fits := func(c v3.Crash) bool {
		return (w.process == "" || c.Type == w.process) && (w.index < 0 || c.Index == w.index)
	}
	if w.number > 0 {
		if w.number > len(crashes) {
			return v3.Crash{}, fmt.Errorf("crash %d does not exist: %s recorded", w.number, console.CrashCount(len(crashes)))
		}
		c := crashes[w.number-1]
		switch {
		case !fits(c):
			return c, fmt.Errorf("crash %d is of another instance: %s/%d", w.number, c.Type, c.Index)
		case !c.Kept:
			return c, fmt.Errorf("the files of crash %d are not kept", w.number)
		}
		return c, nil
	}
	for _, c := range crashes {
		if c.Kept && fits(c) {
			return c, nil
		}
	}
	return v3.Crash{}, fmt.Errorf("no files of a matching crash are kept")
}
