package apps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

const (
	// lastLines is the number of log lines that are shown of an app that did not start.
	lastLines = 20
	// recordPatience bounds the wait for an exit record. dewd stores the last output of
	// a process before it.
	recordPatience = 10 * time.Second
	// causeStartTimeout is the cause of an instance that did not become healthy.
	causeStartTimeout = "start_timeout"
)

// failedStart is an app whose instances crashed while it started.
type failedStart struct {
	app       v3.App
	began     time.Time
	instances []string // ids of the crashed instances
}

// whyCrashed shows the last log lines of an app that crashed while starting. It returns
// the exit record as an error.
func whyCrashed(ctx context.Context, b failedStart, api *client.Client, out *console.Console) error {
	wait := out.Wait("Waiting for the exit record of app %s", b.app.Name)
	crash, found, err := b.record(ctx, api)
	wait.End()
	if err != nil {
		return err
	}
	lines, err := api.Logs().Since(ctx, b.app.GUID, b.began)
	if err != nil && !client.NotFound(err) {
		return err
	}
	if out.FollowsLogs {
		lines = nil
	}
	lines = slices.DeleteFunc(lines, func(l v3.Line) bool { return !strings.HasPrefix(l.Source, "APP/") && l.Stream != "ERR" })
	for _, l := range lines[max(0, len(lines)-lastLines):] {
		out.Say("   %s", console.FormatLine(l, console.LineStyle{Terminal: out.ErrTerminal}))
	}
	if !found {
		return &console.Failure{Status: console.StatusCrashed, Err: fmt.Errorf("%s crashed while starting", b.app.Name), Advice: CrashAdvice(b.app.Name)}
	}
	f := explainCrash(b.app.Name, crash)
	if !crash.GivenUp && !out.FollowsLogs { // a smoke test deletes the app
		f.Advice += "\n     dew keeps restarting it. To stop it: dew stop " + b.app.Name
	}
	return f
}

// record waits for the exit record of one of the instances, which dewd stores a moment
// after the crash.
func (b failedStart) record(ctx context.Context, api *client.Client) (crash v3.Crash, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	err = client.Poll(ctx, func() (bool, error) {
		crashes, err := api.Processes().Crashes(ctx, b.app.GUID)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(crashes, func(c v3.Crash) bool { return slices.Contains(b.instances, c.Instance) })
		if found = i >= 0; found {
			crash = crashes[i]
		}
		return found, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // report the crash without its record
	}
	return crash, found, err
}

// explainCrash turns an exit record into the error of a start, with advice.
func explainCrash(app string, c v3.Crash) *console.Failure {
	f := &console.Failure{Status: console.StatusCrashed, Err: fmt.Errorf("%s crashed while starting: %s", app, c.Description), Advice: CrashAdvice(app)}
	switch first := c.First; {
	case first.OutOfMemory && first.Sidecar != "" && first.MemoryLimit > 0:
		f.Status = console.StatusMemory
		f.Advice = fmt.Sprintf("Give the sidecar more than %s (memory under sidecars in the manifest). It is a part of the app's memory limit", console.Bytes(first.MemoryLimit))
	case first.OutOfMemory:
		f.Status = console.StatusMemory
		f.Advice = "Give it more memory (-m, or memory in the manifest). To see how much it used: dew crashes " + app
	case first.Cause == causeStartTimeout:
		f.Status = console.StatusTimeout
		f.Err = fmt.Errorf("%s did not become healthy: %s", app, c.Description)
		f.Advice = "The app must listen on 0.0.0.0:$PORT. To allow more time, use -t SECONDS (timeout in the manifest). To check only that the process runs, use -u process"
		if strings.Contains(c.Description, "http check failed: GET ") && strings.Contains(c.Description, " answered ") {
			f.Advice = "Set health-check-http-endpoint in the manifest (or --endpoint) to a path that answers 200"
		}
	case first.Code == 0:
		f.Advice = "Exit status 0 is a crash as well: the start command of an app or sidecar must run until dew stops it"
	case first.Detail != "":
		f.Advice = console.Capitalize(first.Detail) + ". Check command in the manifest. To see the output: dew logs " + app + " --recent"
	}
	return f
}

// CrashAdvice is the advice to read the crashes and logs of an app.
func CrashAdvice(app string) string {
	return "For details: dew crashes " + app + ", dew logs " + app + " --recent"
}
