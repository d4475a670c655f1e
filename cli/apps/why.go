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
	// lastLines is how many lines of an app that did not start are shown.
	lastLines = 20
	// recordPatience bounds the wait for an exit record: what a process printed last
	// is written down before it.
	recordPatience = 10 * time.Second
	// causeStartTimeout is the cause of an instance that was never healthy.
	causeStartTimeout = "start_timeout"
)

// failedStart is an app whose instances crashed at its start.
type failedStart struct {
	app       v3.App
	began     time.Time
	instances []string // ids of those that crashed
}

// whyCrashed shows the last lines of an app that crashed at its start and makes
// its exit record the error.
func whyCrashed(ctx context.Context, b failedStart, ask *client.Client, out *console.Console) error {
	wait := out.Wait("Waiting for the exit record of app %s", b.app.Name)
	crash, found, err := b.record(ctx, ask)
	wait.End()
	if err != nil {
		return err
	}
	lines, err := ask.Logs().Since(ctx, b.app.GUID, b.began)
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
		return &console.Failure{Status: console.StatusCrashed, Err: fmt.Errorf("%s crashed at its start", b.app.Name), Advice: CrashAdvice(b.app.Name)}
	}
	f := explainCrash(b.app.Name, crash)
	if !crash.GivenUp && !out.FollowsLogs { // a smoke test deletes it
		f.Advice += "\n     dew keeps restarting it; to stop that: dew stop " + b.app.Name
	}
	return f
}

// record waits for the exit record of one of the instances: that an instance has
// crashed is known a moment before its record is.
func (b failedStart) record(ctx context.Context, ask *client.Client) (crash v3.Crash, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	err = client.Poll(ctx, func() (bool, error) {
		crashes, err := ask.Processes().Crashes(ctx, b.app.GUID)
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
		err = nil // it is told without the record
	}
	return crash, found, err
}

// explainCrash makes an exit record the error of a start, with what to do.
func explainCrash(app string, c v3.Crash) *console.Failure {
	f := &console.Failure{Status: console.StatusCrashed, Err: fmt.Errorf("%s crashed at its start: %s", app, c.Description), Advice: CrashAdvice(app)}
	switch first := c.First; {
	case first.OutOfMemory && first.Sidecar != "" && first.MemoryLimit > 0:
		f.Status = console.StatusMemory
		f.Advice = fmt.Sprintf("give the sidecar more than %s (memory below sidecars in the manifest); it is taken off the app's own memory", console.Bytes(first.MemoryLimit))
	case first.OutOfMemory:
		f.Status = console.StatusMemory
		f.Advice = "give it more memory (-m, or memory in the manifest); dew crashes " + app + " says how much it used"
	case first.Cause == causeStartTimeout:
		f.Status = console.StatusTimeout
		f.Err = fmt.Errorf("%s did not become healthy: %s", app, c.Description)
		f.Advice = "an app must listen on 0.0.0.0:$PORT; -t (timeout in the manifest) gives it more seconds, -u process asks only whether it runs"
		if strings.Contains(c.Description, "http check failed: GET ") && strings.Contains(c.Description, " answered ") {
			f.Advice = "set health-check-http-endpoint in the manifest (--endpoint) to a path that answers 200"
		}
	case first.Code == 0:
		f.Advice = "status 0 is a crash too: what an app or a sidecar starts must run until it is stopped"
	case first.Detail != "":
		f.Advice = first.Detail + ": see command in the manifest, and dew logs " + app + " --recent"
	}
	return f
}

// CrashAdvice is the advice to read crashes and logs of an app.
func CrashAdvice(app string) string {
	return "dew crashes " + app + " and dew logs " + app + " --recent say more"
}
