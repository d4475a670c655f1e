package apps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// StartAndWait starts or restarts an app, waits until it runs and returns its status.
func StartAndWait(ctx context.Context, a v3.App, action client.Action, api *client.Client, out *console.Console) (View, error) {
	began := time.Now()
	wait := out.Wait("Starting app %s", a.Name)
	started, err := api.Apps().SetState(ctx, a.GUID, action)
	wait.End()
	if e := (*client.Error)(nil); errors.As(err, &e) && e.Status == http.StatusUnprocessableEntity {
		return View{}, &console.Failure{Status: console.StatusCrashed, Err: fmt.Errorf("cannot start %s: %w", a.Name, err)}
	}
	if err != nil {
		return View{}, err
	}
	var parts viewParts
	fixed := make(chan error, 1)
	go func() { fixed <- parts.readFixed(ctx, api, started.GUID) }() // while the app starts
	err = WaitRunning(ctx, started, api, out)
	ferr := <-fixed
	if crashed := (*NotRunning)(nil); errors.As(err, &crashed) {
		return View{}, whyCrashed(ctx, failedStart{app: started, began: began, instances: crashed.instances}, api, out)
	}
	if err := cmp.Or(err, ferr); err != nil {
		return View{}, err
	}
	if err := parts.readState(ctx, api, started.GUID); err != nil {
		return View{}, err
	}
	return parts.view(started), nil
}

// NotRunning is the error for a process whose instances all crashed.
type NotRunning struct {
	process   string
	instances []string // ids
}

// Error names the process.
func (n *NotRunning) Error() string { return "all instances of " + n.process + " crashed" }

// WaitRunning waits until every process has a running instance, or no instances.
func WaitRunning(ctx context.Context, a v3.App, api *client.Client, out *console.Console) error {
	limit := console.MinutesFromEnv("CF_STARTUP_TIMEOUT", 5*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("%s did not start within %s", a.Name, limit),
		Advice: startTimeoutAdvice(a.Name),
	})
	defer cancel()
	ps, err := api.Processes().List(ctx, a.GUID)
	if err != nil {
		return err
	}
	wait := out.Wait("Starting app %s", a.Name)
	defer wait.End()
	reported := map[string]bool{}
	err = client.Poll(ctx, func() (bool, error) {
		for len(ps) > 0 {
			stats, err := api.Processes().AwaitStats(ctx, ps[0].GUID)
			if err != nil {
				return false, err
			}
			for _, s := range stats {
				if s.Details != nil && *s.Details != "" && !reported[*s.Details] {
					reported[*s.Details] = true
					out.Say("Instance %d of %s: %s", s.Index, ps[0].Type, *s.Details)
				}
			}
			wait.Note("%s", instancesNote(ps[0].Type, stats))
			if stable, err := settled(ps[0].Type, stats); !stable || err != nil {
				return false, err
			}
			ps = ps[1:]
		}
		return true, nil
	})
	wait.End()
	sayInterrupted(ctx, out, "starting app "+a.Name, "To see its status: dew app "+a.Name+". To stop it: dew stop "+a.Name)
	return console.TimeoutCause(ctx, err)
}

// startTimeoutAdvice is the advice for an app that did not start in time.
func startTimeoutAdvice(app string) string {
	return "To see its output: dew logs " + app + " --recent. To wait longer, set CF_STARTUP_TIMEOUT (in minutes)"
}

// instancesNote is the progress of a process: "web: 1 of 2 instances running, 1
// starting".
func instancesNote(process string, stats []v3.InstanceStats) string {
	states := map[string]int{}
	for _, s := range stats {
		states[s.State]++
	}
	note := fmt.Sprintf("%s: %d of %d instances running", process, states[v3.StateRunning], len(stats))
	for _, state := range slices.Sorted(maps.Keys(states)) {
		if state != v3.StateRunning {
			note += fmt.Sprintf(", %d %s", states[state], strings.ToLower(state))
		}
	}
	return note
}

// sayInterrupted says what dewd continues to do after Ctrl-C, and what the user can do.
// A smoke test cleans up and has its own message.
func sayInterrupted(ctx context.Context, out *console.Console, what, todo string) {
	if errors.Is(context.Cause(ctx), context.Canceled) && !out.FollowsLogs {
		out.Say("Interrupted, but dewd continues %s\n     %s", what, todo)
	}
}

// settled reports whether the wait for a process is over: one of its instances runs, or
// it has none.
func settled(process string, stats []v3.InstanceStats) (bool, error) {
	in := func(state string) func(v3.InstanceStats) bool {
		return func(s v3.InstanceStats) bool { return s.State == state }
	}
	if len(stats) == 0 || slices.ContainsFunc(stats, in(v3.StateRunning)) {
		return true, nil
	}
	if !slices.ContainsFunc(stats, func(s v3.InstanceStats) bool { return s.State != v3.StateCrashed }) {
		crashed := &NotRunning{process: process}
		for _, s := range stats {
			crashed.instances = append(crashed.instances, s.InstanceGUID)
		}
		return false, crashed
	}
	if !slices.ContainsFunc(stats, func(s v3.InstanceStats) bool { return !cannotBePlaced(s) }) {
		return false, &console.Failure{
			Status: console.StatusInfrastructure, Err: fmt.Errorf("cannot start %s: %s", process, *stats[0].Details),
			Advice: "Lower the memory limit: dew scale APP -m MEMORY. To start it anyway, run dewd with --placement-check off",
		}
	}
	return false, nil
}

// cannotBePlaced reports whether an instance stays DOWN because the machine is smaller
// than its limits.
func cannotBePlaced(s v3.InstanceStats) bool {
	return s.State == v3.StateDown && s.Details != nil && strings.HasPrefix(*s.Details, "insufficient resources: ")
}
