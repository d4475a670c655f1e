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

// crashedFlags choose an instance that crashed in the place of one that runs.
func crashedFlags() []cli.Flag {
	return []cli.Flag{
		command.BoolFlag("crashed", "enter a copy of what the newest crashed instance left; nothing runs there"),
		&cli.IntFlag{Name: "crash", Usage: "the `N`-th newest crash, as dew crashes lists them; implies --crashed"},
	}
}

// crashedChoice is what these flags say.
type crashedChoice struct {
	asked   bool
	number  int    // 1 is the newest; 0: the newest of which something is kept
	process string // type; empty: any
	index   int    // -1: any
}

func crashedOf(c *cli.Context) (crashedChoice, error) {
	w := crashedChoice{asked: c.Bool("crashed") || c.IsSet("crash"), number: c.Int("crash"), index: -1}
	if c.IsSet("crash") && w.number < 1 {
		return w, console.UsageError("--crash: 1 is the newest, and there is no %d", w.number)
	}
	if c.IsSet("process") {
		w.process = c.String("process")
	}
	if c.IsSet("i") {
		w.index = c.Int("i")
	}
	if w.asked && (c.Bool("N") || len(c.StringSlice("L")) > 0) {
		return w, console.UsageError("nothing runs in an instance that crashed: there is nothing to forward to")
	}
	return w, nil
}

// crashedLogin is the user name that leads to what a crashed instance left.
func crashedLogin(ctx context.Context, in Location, ask *client.Client) (string, error) {
	a, err := command.FindApp(ctx, ask, in.App)
	if err != nil {
		return "", err
	}
	crashes, err := ask.Processes().Crashes(ctx, a.GUID)
	if err != nil {
		return "", err
	}
	c, err := chooseCrash(crashes, in.crashed)
	if err != nil {
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s: %w", a.Name, err), Advice: "dew crashes " + a.Name + " tells of which the files are kept"}
	}
	user := "cf:" + c.Process + "/crashed-" + c.Instance
	if in.sidecar != "" {
		user += "/" + in.sidecar
	}
	return user, nil
}

// chooseCrash finds the crash that is meant, of those that are newest first.
func chooseCrash(crashes []v3.Crash, w crashedChoice) (v3.Crash, error) {
	fits := func(c v3.Crash) bool {
		return (w.process == "" || c.Type == w.process) && (w.index < 0 || c.Index == w.index)
	}
	if w.number > 0 {
		if w.number > len(crashes) {
			return v3.Crash{}, fmt.Errorf("crash %d does not exist: crashes on record: %d", w.number, len(crashes))
		}
		c := crashes[w.number-1]
		switch {
		case !fits(c):
			return c, fmt.Errorf("crash %d was one of %s/%d", w.number, c.Type, c.Index)
		case !c.Kept:
			return c, fmt.Errorf("nothing is kept of crash %d", w.number)
		}
		return c, nil
	}
	for _, c := range crashes {
		if c.Kept && fits(c) {
			return c, nil
		}
	}
	return v3.Crash{}, fmt.Errorf("nothing is kept of a crash")
}
