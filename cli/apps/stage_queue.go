package apps

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// awaitTurn waits until the earlier builds of the app have finished. dewd runs the
// builds of one app one after the other, because they share a cache. The lines of
// earlier builds are not shown as lines of this build.
func (s *stagingLog) awaitTurn(ctx context.Context, a v3.App, b v3.Build) error {
	if b.State != v3.BuildStaging {
		return nil
	}
	var wait *console.Waiting
	err := client.Poll(ctx, func() (bool, error) {
		all, err := s.api.Bits().StagingBuilds(ctx, a.GUID)
		earlier := slices.IndexFunc(all, func(o v3.Build) bool { return o.GUID == b.GUID }) > 0
		if err != nil || !earlier {
			return true, err
		}
		if wait == nil {
			wait = s.out.Wait("Waiting for another push that is staging app %s", a.Name)
		}
		lines, _, err := s.api.Logs().FirstSince(ctx, a.GUID, s.from)
		for _, l := range lines {
			s.from = l.Time.Add(1)
			if l.Source == "STG" {
				wait.Note("%s", l.Text)
			}
		}
		if client.NotFound(err) {
			err = nil // no output yet
		}
		return false, err
	})
	if wait != nil {
		wait.End()
	}
	return err
}

// queueLook is how often a command whose build has no output yet looks for other builds.
const queueLook = time.Second

// stagingQueue finds out why a build does not start: dewd limits how many builds run at
// the same time.
type stagingQueue struct {
	build v3.Build
	log   *stagingLog
	wait  *console.Waiting
	next  time.Time
}

// look shows how many builds are ahead, as long as this build has no output.
func (q *stagingQueue) look(ctx context.Context) error {
	if q.log.any {
		q.wait.Note("")
		return nil
	}
	now := time.Now()
	if q.next.IsZero() {
		q.next = now.Add(console.QuietTime / 2) // most builds start immediately
	}
	if now.Before(q.next) {
		return nil
	}
	q.next = now.Add(queueLook)
	all, err := q.log.api.Bits().StagingBuilds(ctx, "")
	ahead := slices.IndexFunc(all, func(o v3.Build) bool { return o.GUID == q.build.GUID })
	if err == nil && ahead > 0 {
		q.wait.Note("waiting for %s of other apps", buildCount(ahead))
	}
	return err
}

func buildCount(n int) string {
	if n == 1 {
		return "1 build"
	}
	return strconv.Itoa(n) + " builds"
}

// sayStaging says that staging continues after the interruption of a push.
func sayStaging(ctx context.Context, a v3.App, out *console.Console) {
	sayInterrupted(ctx, out, "staging app "+a.Name, "To follow it: dew logs "+a.Name+". The app does not change until you run dew push "+a.Name+" again")
}
