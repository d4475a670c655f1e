package apps

import (
	"cmp"
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
	// causeStopTimeout is the cause of a process that did not exit after SIGTERM.
	causeStopTimeout = "stop_timeout"
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
	lines = slices.DeleteFunc(lines, func(l v3.Line) bool {
		return !strings.HasPrefix(l.Source, "APP/") && (l.Stream != "ERR" || string(l.Text) == crash.Verdict.Sentence) // the error has the sentence
	})
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

// explainCrash turns an exit record into the error of a start, with the advice of its
// verdict.
func explainCrash(app string, c v3.Crash) *console.Failure {
	f := &console.Failure{
		Status: crashStatus(c),
		Err:    fmt.Errorf("%s crashed while starting: %s", app, cmp.Or(c.Verdict.Sentence, c.Description)),
		Advice: cmp.Or(c.Verdict.Advice, CrashAdvice(app)),
	}
	if f.Status == console.StatusTimeout {
		f.Err = fmt.Errorf("%s did not become healthy: %s", app, cmp.Or(c.Verdict.Sentence, c.Description))
	}
	return f
}

// crashStatus is the exit status of dew for a crash.
func crashStatus(c v3.Crash) int {
	switch {
	case c.First.OutOfMemory:
		return console.StatusMemory
	case c.First.Cause == causeStartTimeout:
		return console.StatusTimeout
	}
	return console.StatusCrashed
}

// CrashAdvice is the advice to read the crashes and logs of an app.
func CrashAdvice(app string) string {
	return "For details: dew crashes " + app + ", dew logs " + app + " --recent"
}
