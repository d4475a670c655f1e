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

// awaitTurn waits until the earlier builds of the app have ended: dewd stages those
// of one app one after the other, because they share a cache. Their lines are not
// shown as those of this build.
func (s *stagingLog) awaitTurn(ctx context.Context, a v3.App, b v3.Build) error {
	if b.State != v3.BuildStaging {
		return nil
	}
	var wait *console.Waiting
	err := client.Poll(ctx, func() (bool, error) {
		all, err := s.ask.Bits().StagingBuilds(ctx, a.GUID)
		earlier := slices.IndexFunc(all, func(o v3.Build) bool { return o.GUID == b.GUID }) > 0
		if err != nil || !earlier {
			return true, err
		}
		if wait == nil {
			wait = s.out.Wait("Waiting: app %s is being staged by another push", a.Name)
		}
		lines, _, err := s.ask.Logs().FirstSince(ctx, a.GUID, s.from)
		for _, l := range lines {
			s.from = l.Time.Add(1)
			if l.Source == "STG" {
				wait.Note("%s", l.Text)
			}
		}
		if client.NotFound(err) {
			err = nil // nothing was printed yet
		}
		return false, err
	})
	if wait != nil {
		wait.End()
	}
	return err
}

// queueLook is how often a build that printed nothing yet looks for others.
const queueLook = time.Second

// stagingQueue finds out why a build does not begin: dewd stages only some apps at a
// time.
type stagingQueue struct {
	build v3.Build
	log   *stagingLog
	wait  *console.Waiting
	next  time.Time
}

// look tells how many builds come first, as long as the own one has printed nothing.
func (q *stagingQueue) look(ctx context.Context) error {
	if q.log.any {
		q.wait.Note("")
		return nil
	}
	now := time.Now()
	if q.next.IsZero() {
		q.next = now.Add(console.QuietTime / 2) // most begin at once
	}
	if now.Before(q.next) {
		return nil
	}
	q.next = now.Add(queueLook)
	all, err := q.log.ask.Bits().StagingBuilds(ctx, "")
	ahead := slices.IndexFunc(all, func(o v3.Build) bool { return o.GUID == q.build.GUID })
	if err == nil && ahead > 0 {
		q.wait.Note("waiting for its turn, %s of other apps ahead", buildCount(ahead))
	}
	return err
}

func buildCount(n int) string {
	if n == 1 {
		return "1 build"
	}
	return strconv.Itoa(n) + " builds"
}

// sayStaging tells that an interrupted push does not interrupt the staging.
func sayStaging(ctx context.Context, a v3.App, out *console.Console) {
	sayInterrupted(ctx, out, "staging app "+a.Name, "dew logs "+a.Name+" shows it; the app runs on unchanged until dew push "+a.Name+" is run again")
}
