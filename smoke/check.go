package smoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/dewrun/dew/api/client"
)

// Commands are the dew commands that a run uses, so that it behaves like a user. Package
// cli/smoketest has the real ones.
type Commands interface {
	// Push pushes the apps of a manifest until each process has a running instance.
	Push(ctx context.Context, p Push) error
	CreateService(ctx context.Context, s Service) error
	// SSH runs a command inside an instance.
	SSH(ctx context.Context, at Instance, command string) (Output, error)
	// Dial connects to a port of an instance, as a process inside the instance would.
	Dial(ctx context.Context, at Instance, port int) (net.Conn, error)
	// Show writes the status of an app.
	Show(ctx context.Context, app string, w io.Writer) error
}

// Push is one manifest to push.
type Push struct {
	Manifest  string
	Dir       string         // folder of the files of apps without a path
	Variables map[string]any // variables of smoke.yml; those of the command line take precedence
}

// Instance is one instance of a process of an app.
type Instance struct {
	App, Process string
	Index        int
}

// Output is the result of a command inside an instance.
type Output struct {
	Text   string
	Status int
}

// subject is the app of a check.
type subject struct{ name, guid string }

// checker runs the checks of one folder.
type checker struct {
	client   *client.Client
	commands Commands
	router   string // address that serves all apps, empty if the names of routes resolve
	env      []string
	dir      string
	began    time.Time // start of the push
	mails    uint64    // newest mail before the push
	apps     []subject
	watch    *watch
	onRetry  func(err error) // is called with the error of each failed attempt
	bound    func(context.Context, time.Duration) (context.Context, context.CancelFunc)
}

// check runs one check, until it holds or its time is over.
func (c *checker) check(ctx context.Context, k Check) error {
	a, err := c.subject(k)
	if err != nil {
		return err
	}
	if k.causesCrash() {
		return c.exit(ctx, k, a)
	}
	ctx, stop := c.watch.guard(ctx)
	defer stop()
	err = c.until(ctx, k.Timeout, func(ctx context.Context) error { return c.try(ctx, k, a) })
	if err == nil {
		return nil
	}
	// A crash is the better reason, even if it was not noticed until now.
	if crash := c.watch.check(context.WithoutCancel(ctx)); crash != nil {
		return crash
	}
	return c.daemonFailure(ctx, err)
}

// daemonFailure returns err, or a failure that the daemon no longer responds if that is the
// cause.
func (c *checker) daemonFailure(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	_, now := c.client.Daemon().Root(ctx)
	if u := (*client.Unreachable)(nil); errors.As(now, &u) {
		return now
	}
	return err
}

func (c *checker) subject(k Check) (subject, error) {
	if len(c.apps) == 0 {
		return subject{}, failed(StatusUsage, "the manifest has no app to check")
	}
	if k.App == "" {
		return c.apps[0], nil
	}
	i := slices.IndexFunc(c.apps, func(a subject) bool { return a.name == k.App })
	if i < 0 {
		return subject{}, failed(StatusUsage, "line %d: app: app %q does not exist", k.Line, k.App)
	}
	return c.apps[i], nil
}

// try makes one attempt.
func (c *checker) try(ctx context.Context, k Check, a subject) error {
	switch {
	case k.HTTP != nil:
		return c.http(ctx, k.HTTP, a)
	case k.Log != nil:
		return c.log(ctx, k.Log, a)
	case k.SSH != nil:
		return c.ssh(ctx, k.SSH, a)
	case k.Mail != nil:
		return c.mail(ctx, k.Mail)
	default:
		return c.script(ctx, k.Run, a)
	}
}

// final is an error that a retry does not change.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// until retries until try succeeds. When the time is over, it returns the last error.
func (c *checker) until(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	bounded, cancel := c.bounded(ctx, limit)
	defer cancel()
	var last error
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := try(bounded)
		if err == nil {
			return nil
		}
		if last == nil || bounded.Err() == nil || !isTimeout(err) {
			last = err // not the error that the time ran out during a try
		}
		if f := (final{}); errors.As(err, &f) {
			return asFailure(f.error, StatusAssertion)
		}
		if c.onRetry != nil && bounded.Err() == nil {
			c.onRetry(err)
		}
		select {
		case <-time.After(pause):
			continue
		case <-bounded.Done():
		}
		if ctx.Err() != nil {
			return causeOf(ctx, ctx.Err())
		}
		f := *asFailure(last, StatusAssertion)
		f.Err = fmt.Errorf("%w (tried for %s)", f.Err, limit)
		return &f
	}
}

func (c *checker) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if c.bound != nil {
		return c.bound(ctx, limit)
	}
	return context.WithTimeout(ctx, limit)
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	n := net.Error(nil)
	return errors.As(err, &n) && n.Timeout()
}
