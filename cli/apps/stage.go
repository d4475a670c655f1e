package apps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// Stage creates a droplet from a package and shows the output of staging.
func Stage(ctx context.Context, a v3.App, pkg string, api *client.Client, out *console.Console) (droplet string, err error) {
	limit := console.MinutesFromEnv("CF_STAGING_TIMEOUT", 15*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("staging %s took longer than %s", a.Name, limit), Advice: "To allow more time, set CF_STAGING_TIMEOUT (in minutes)",
	})
	defer cancel()
	s := stagingLog{app: a.GUID, from: time.Now(), api: api, out: out}
	b, err := api.Bits().CreateBuild(ctx, pkg)
	if err != nil {
		return "", err
	}
	if err := s.awaitTurn(ctx, a, b); err != nil {
		sayStaging(ctx, a, out)
		return "", console.TimeoutCause(ctx, err)
	}
	queue := stagingQueue{build: b, log: &s, wait: out.Wait("Staging app %s", a.Name)}
	defer queue.wait.End()
	err = client.Poll(ctx, func() (bool, error) {
		if b.State == v3.BuildStaging {
			if b, err = api.Bits().Build(ctx, b.GUID); err != nil {
				return false, err
			}
		}
		if b.State == v3.BuildStaging {
			_, err := s.show(ctx)
			return false, errors.Join(err, queue.look(ctx))
		}
		return true, s.rest(ctx)
	})
	queue.wait.End()
	if client.NotFound(err) { // only deleting the app deletes a build
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s was deleted during staging", a.Name)}
	}
	if err != nil {
		sayStaging(ctx, a, out)
		return "", console.TimeoutCause(ctx, err)
	}
	if b.State == v3.BuildStaged && b.Droplet != nil {
		return b.Droplet.GUID, nil
	}
	why := "dewd gave no reason"
	if b.Error != nil && *b.Error != "" {
		why = stagingCause(*b.Error)
	}
	return "", &console.Failure{Status: console.StatusStaging, Err: fmt.Errorf("cannot stage %s: %s", a.Name, why)}
}

// platformWords match the start of the error of a build. The cause comes after it.
var platformWords = regexp.MustCompile(`^([A-Za-z]+ - )?(App staging failed( in the buildpack [a-z]+ phase)?: |An app was not successfully detected by any available buildpack: )?`)

// stagingCause is the cause in the error of a build.
func stagingCause(text string) string {
	return text[len(platformWords.FindString(text)):]
}

// stagingFailed starts the log line with the cause of a failed build. dew push does not
// show this line, because its error has the same text.
const stagingFailed = "Staging failed: "

// stagingLog shows the lines of one staging run, each once.
type stagingLog struct {
	app  string
	from time.Time
	api  *client.Client
	out  *console.Console
	any  bool // a line was shown
}

// show shows the new lines of one response.
func (s *stagingLog) show(ctx context.Context) (more bool, err error) {
	lines, more, err := s.api.Logs().FirstSince(ctx, s.app, s.from)
	if client.NotFound(err) {
		return false, nil // no output yet
	}
	if err != nil {
		return false, err
	}
	for _, l := range lines {
		s.from = l.Time.Add(1)
		if l.Source != "STG" || bytes.HasPrefix(l.Text, []byte(stagingFailed)) {
			continue
		}
		if s.out.ErrTerminal {
			l.Text = console.AppendPrintable(nil, l.Text, s.out.Color)
		}
		s.any = true
		s.out.Say("   %s", l.Text)
	}
	return more, nil
}

// maxRest limits the requests for more lines after staging finished, so that endless
// output does not hide the result.
const maxRest = 20

// rest shows the remaining lines after staging finished.
func (s *stagingLog) rest(ctx context.Context) error {
	for range maxRest {
		if more, err := s.show(ctx); err != nil || !more {
			return err
		}
	}
	s.out.Say("   … staging printed more lines than are shown here …")
	return nil
}
