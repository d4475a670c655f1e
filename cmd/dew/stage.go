package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// stage makes a droplet of a package and shows what staging prints meanwhile.
func stage(ctx context.Context, a v3.App, pkg string, ask *client.Client, out *console) (droplet string, err error) {
	limit := minutes("CF_STAGING_TIMEOUT", 15*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &failure{
		status: statusTimeout, err: fmt.Errorf("staging %s took longer than %s", a.Name, limit), todo: "give it more time with CF_STAGING_TIMEOUT, in minutes",
	})
	defer cancel()
	s := stagingLog{app: a.GUID, from: time.Now(), ask: ask, out: out}
	b, err := ask.Bits().CreateBuild(ctx, pkg)
	if err != nil {
		return "", err
	}
	if err := s.awaitTurn(ctx, a, b); err != nil {
		sayStaging(ctx, a, out)
		return "", timedOut(ctx, err)
	}
	queue := stagingQueue{build: b, log: &s, wait: out.wait("Staging app %s", a.Name)}
	defer queue.wait.end()
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
	queue.wait.end()
	if client.NotFound(err) { // a build goes only with its app
		return "", &failure{status: statusFailed, err: fmt.Errorf("app %s was deleted while it was staged", a.Name)}
	}
	if err != nil {
		sayStaging(ctx, a, out)
		return "", timedOut(ctx, err)
	}
	if b.State == v3.BuildStaged && b.Droplet != nil {
		return b.Droplet.GUID, nil
	}
	why := "the daemon did not say why"
	if b.Error != nil && *b.Error != "" {
		why = stagingCause(*b.Error)
	}
	return "", &failure{status: statusStaging, err: fmt.Errorf("cannot stage %s: %s", a.Name, why)}
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
	out  *console
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
		if s.out.drawn {
			l.Text = appendShown(nil, l.Text, s.out.color)
		}
		s.any = true
		s.out.say("   %s", l.Text)
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
	s.out.say("   … staging has printed more than is shown here …")
	return nil
}

// minutes reads a time from the environment as cf does: in minutes, also parts
// of one.
func minutes(name string, otherwise time.Duration) time.Duration {
	n, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil || n <= 0 {
		return otherwise
	}
	return time.Duration(n * float64(time.Minute))
}

// timedOut is the cause of the end of ctx where that is why err came. What was found
// out in time stays, however late it is by now.
func timedOut(ctx context.Context, err error) error {
	f := (*failure)(nil)
	if err == nil || ctx.Err() == nil || !errors.As(context.Cause(ctx), &f) {
		return err
	}
	if errors.Is(err, f) || errors.Is(err, context.DeadlineExceeded) {
		return f
	}
	return err
}
