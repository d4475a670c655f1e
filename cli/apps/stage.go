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

// Stage makes a droplet of a package and shows what staging prints meanwhile.
func Stage(ctx context.Context, a v3.App, pkg string, ask *client.Client, out *console.Console) (droplet string, err error) {
	limit := console.MinutesFromEnv("CF_STAGING_TIMEOUT", 15*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &console.Failure{
		Status: console.StatusTimeout, Err: fmt.Errorf("staging %s took longer than %s", a.Name, limit), Advice: "give it more time with CF_STAGING_TIMEOUT, in minutes",
	})
	defer cancel()
	s := stagingLog{app: a.GUID, from: time.Now(), ask: ask, out: out}
	b, err := ask.Bits().CreateBuild(ctx, pkg)
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
			if b, err = ask.Bits().Build(ctx, b.GUID); err != nil {
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
	if client.NotFound(err) { // a build goes only with its app
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s was deleted while it was staged", a.Name)}
	}
	if err != nil {
		sayStaging(ctx, a, out)
		return "", console.TimeoutCause(ctx, err)
	}
	if b.State == v3.BuildStaged && b.Droplet != nil {
		return b.Droplet.GUID, nil
	}
	why := "the daemon did not say why"
	if b.Error != nil && *b.Error != "" {
		why = stagingCause(*b.Error)
	}
	return "", &console.Failure{Status: console.StatusStaging, Err: fmt.Errorf("cannot stage %s: %s", a.Name, why)}
}

// platformWords begin the error of a build on the platform. The cause comes after them.
var platformWords = regexp.MustCompile(`^([A-Za-z]+ - )?(App staging failed( in the buildpack [a-z]+ phase)?: |An app was not successfully detected by any available buildpack: )?`)

// stagingCause is why a build failed, without the platform's words for it.
func stagingCause(text string) string {
	return text[len(platformWords.FindString(text)):]
}

// stagingFailed begins the line of the log that says why a build failed. A push says
// the same with its last line.
const stagingFailed = "Staging failed: "

// stagingLog shows the lines of one staging run, each once.
type stagingLog struct {
	app  string
	from time.Time
	ask  *client.Client
	out  *console.Console
	any  bool // a line was shown
}

// show shows what was printed since, as far as one answer has it.
func (s *stagingLog) show(ctx context.Context) (more bool, err error) {
	lines, more, err := s.ask.Logs().FirstSince(ctx, s.app, s.from)
	if client.NotFound(err) {
		return false, nil // nothing was printed yet
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

// maxRest is how often more is asked for when staging is over: what prints
// without end must not keep anybody from learning how it ended.
const maxRest = 20

// rest shows what a staging that is over has printed at last.
func (s *stagingLog) rest(ctx context.Context) error {
	for range maxRest {
		if more, err := s.show(ctx); err != nil || !more {
			return err
		}
	}
	s.out.Say("   … staging has printed more than is shown here …")
	return nil
}
