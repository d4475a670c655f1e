package apps

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// killWait bounds dew kill --wait: a process can handle the signal and keep running.
const killWait = time.Minute

// killed is an instance of which one process got a signal.
type killed struct {
	app      v3.App
	process  v3.Process
	index    int
	instance string // guid of the instance that got the signal
}

// instanceAt returns the guid of the instance that a process has at an index.
func instanceAt(ctx context.Context, p v3.Process, index int, api *client.Client) (string, error) {
	stats, err := api.Processes().Stats(ctx, p.GUID)
	if err != nil {
		return "", err
	}
	for _, s := range stats {
		if s.Index == index {
			return s.InstanceGUID, nil
		}
	}
	return "", fmt.Errorf("process %s has no instance %d", p.Type, index)
}

// await waits for the exit record of the instance and prints it. Then it waits until
// the next instance runs, or says when it starts.
func (k killed) await(ctx context.Context, api *client.Client, out *console.Console) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killWait, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("instance %d of %s did not crash and restart within %s", k.index, k.app.Name, killWait),
		Advice: "A process can handle or ignore the signal. To see its state: dew app " + k.app.Name,
	})
	defer cancel()
	err := client.Poll(ctx, func() (bool, error) {
		crashes, _, err := api.Processes().NewestCrashes(ctx, k.app.GUID, firstCrashes)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(crashes, func(c v3.Crash) bool { return c.Instance == k.instance && c.Complete })
		if i < 0 {
			return false, nil
		}
		printCrash(out, crashes[i])
		return true, nil
	})
	if err != nil {
		return console.TimeoutCause(ctx, err)
	}
	return console.TimeoutCause(ctx, client.Poll(ctx, func() (bool, error) { return k.restarted(ctx, api, out) }))
}

// restarted reports whether a new instance runs instead of the crashed one, or when it
// starts.
func (k killed) restarted(ctx context.Context, api *client.Client, out *console.Console) (bool, error) {
	stats, err := api.Processes().Stats(ctx, k.process.GUID)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(stats, func(s v3.InstanceStats) bool { return s.Index == k.index })
	switch {
	case i < 0:
		return false, fmt.Errorf("process %s has no instance %d any more", k.process.Type, k.index)
	case stats[i].GivenUp:
		out.Say("dew does not restart instance %d: it crashed too often. To start it: dew restart %s", k.index, k.app.Name)
		return true, nil
	case stats[i].State == v3.StateCrashed && time.Until(stats[i].NextStart) > time.Second:
		out.Say("Instance %d starts again in %s", k.index, time.Until(stats[i].NextStart).Round(time.Second))
		return true, nil
	case stats[i].State == v3.StateRunning && stats[i].InstanceGUID != k.instance:
		out.Say("Instance %d is running again", k.index)
		return true, nil
	}
	return false, nil
}
