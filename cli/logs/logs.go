package logs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const (
	recentLines = 1000 // of --recent, as in cf
	firstLines  = 10   // before following
	newEvents   = 50
)

// Commands show log lines and events.
func Commands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "logs", Args: "[APP]...", Category: "Logs and crashes", Usage: "Show or follow the logs of apps",
			About: "By default dew follows the logs: it shows the newest lines, then new lines until you press Ctrl-C, even if an app or " +
				"dewd restarts. With --recent, --since, --since-last-start, --until, --crash or --verify it exits after the last stored line; " +
				"add -f to follow the logs after that.\n\n" +
				"A line is <time> [source/instance] OUT|ERR text. With several apps, the name of the app comes first, in its own colour.\n\n" +
				"A time is a duration before now (10m, 2h30m, 3d), a date with or without a time (2006-01-02T15:04:05Z, 2006-01-02) " +
				"or a time of day (15:04).\n\n" +
				"Examples:\n   dew logs shop\n   dew logs shop cart --since 10m --grep 'timeout|refused'\n   dew logs --all\n" +
				"   dew logs shop --raw --since-last-start > out.txt\n   dew logs shop --crash 1",
			Flags: logFlags(),
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o, err := readLogsOptions(c, time.Now())
			if err != nil {
				return err
			}
			out.Color = out.Color && !c.Bool("no-color")
			return runLogs(c.Context, o, api, out)
		}),
		g.Command(command.Verb{Name: "events", Args: "APP", Category: "Logs and crashes", Usage: "List the audit events of an app, newest first", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runEvents(c.Context, c.Args().First(), api, out)
			}),
	}
}

func logFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, DisableDefaultText: true, Usage: "Follow the logs after the stored lines"},
		command.BoolFlag("all", "Show the logs of all apps of the targeted space, including apps created later"),
		&cli.StringFlag{Name: "service", Usage: "Show the logs of the database of this service `instance` instead of an app"},
		command.BoolFlag("recent", "Show the newest stored lines and exit"),
		&cli.IntFlag{Name: "n", Aliases: []string{"lines"}, DefaultText: fmt.Sprintf("%d; with --recent %d; with --since or --until all; with --crash 20 per process", firstLines, recentLines), Usage: "Show only the newest `count` stored lines of each app"},
		&cli.StringFlag{Name: "since", Usage: "Show lines from this `time` on"},
		&cli.StringFlag{Name: "until", Usage: "Show lines before this `time`"},
		command.BoolFlag("since-last-start", "Show lines since the start of the running instances"),
		&cli.IntFlag{Name: "crash", DefaultText: "none", Usage: "Show the last lines of each process of the crash with this `number`; 1 is the newest crash in dew crashes"},
		&cli.StringFlag{Name: "process", Usage: "Show only lines of this process `type`, such as web"},
		&cli.StringFlag{Name: "sidecar", Usage: "Show only lines of the sidecar with this `name`"},
		command.BoolFlag("no-sidecars", "Hide lines of sidecars"),
		&cli.IntFlag{Name: "instance", Aliases: []string{"i"}, DefaultText: "all instances", Usage: "Show only lines of the instance with this `index`"},
		&cli.StringFlag{Name: "stream", Usage: "Show only lines of this stream: `out|err`"},
		&cli.StringFlag{Name: "grep", Usage: "Show only lines that match this regular `expression`"},
		command.BoolFlag("json", "Write one JSON object per line"),
		command.BoolFlag("raw", "Write only the text that the processes of the app printed, byte for byte, without the lines of the platform (API, CELL, RTR, STG)"),
		command.BoolFlag("no-color", "Do not use colours, even on a terminal"),
		command.BoolFlag("verify", "Check that the stored log is complete; exit with status 1 if lines are damaged or missing. Lines dropped by dewd --log-retention, --log-age or a log rate limit do not count"),
	}
}

type options struct {
	Names  []string // of apps, or with Query.Service of one service instance
	All    bool     // all apps of the space instead of Names
	Query  client.LogQuery
	Grep   *regexp.Regexp // nil: all lines match
	Keep   int            // with Grep, the number of matching stored lines to show; 0: all
	Raw    bool
	Verify bool
}

// endFlags are the flags that select stored lines. With one of them, and without
// --follow, dew logs exits after these lines.
var endFlags = []string{"recent", "since", "since-last-start", "until", "crash", "verify"}

// readLogsOptions reads the flags; durations are before now.
func readLogsOptions(c *cli.Context, now time.Time) (options, error) {
	o := options{All: c.Bool("all"), Raw: c.Bool("raw"), Verify: c.Bool("verify")}
	for _, name := range c.Args().Slice() {
		if !slices.Contains(o.Names, name) {
			o.Names = append(o.Names, name)
		}
	}
	if err := o.readTarget(c); err != nil {
		return o, err
	}
	service := c.IsSet("service")
	q := &o.Query
	*q = client.LogQuery{
		Newest: firstLines, Follow: c.Bool("follow") || !slices.ContainsFunc(endFlags, c.IsSet), Process: c.String("process"), Sidecar: c.String("sidecar"),
		NoSidecars: c.Bool("no-sidecars"), Stream: strings.ToUpper(c.String("stream")), SinceLastStart: c.Bool("since-last-start"), Crash: c.Int("crash"),
		Service: service, NoPlatform: o.Raw && !service,
	}
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if !c.IsSet(name) {
			continue
		}
		t, err := command.ReadTime(c.String(name), now)
		if err != nil {
			return o, console.UsageError("--%s: %w", name, err)
		}
		*at = t
	}
	if c.IsSet("instance") {
		i := c.Int("instance")
		q.Instance = &i
	}
	switch {
	case c.IsSet("n"):
		q.Newest = c.Int("n")
	case !q.Since.IsZero() || !q.Until.IsZero() || q.SinceLastStart || q.Crash > 0:
		q.Newest = -1
	case c.Bool("recent"):
		q.Newest = recentLines
	}
	if c.IsSet("grep") {
		re, err := regexp.Compile(c.String("grep"))
		if err != nil {
			return o, console.UsageError("--grep: %w", err)
		}
		o.grep(re)
	}
	return o, o.check(c)
}

// readTarget reads which logs to show: apps, all apps, or a service instance.
func (o *options) readTarget(c *cli.Context) error {
	service := c.String("service")
	switch {
	case slices.Contains(o.Names, ""):
		return console.UsageError("logs: the name of an app is empty")
	case c.IsSet("service") && (service == "" || o.All || len(o.Names) > 0):
		return console.UsageError("--service needs the name of a service instance, and cannot be used with APP or --all")
	case c.IsSet("service"):
		o.Names = []string{service}
	case o.All && len(o.Names) > 0:
		return console.UsageError("--all shows all apps of the space: leave out %s", strings.Join(o.Names, ", "))
	case !o.All && len(o.Names) == 0:
		return console.UsageError("logs needs APP, --all, or --service with the name of a service instance")
	}
	return nil
}

// several reports whether lines of more than one app can appear.
func (o options) several() bool { return o.All || len(o.Names) > 1 }

// check reports flags that contradict each other.
func (o options) check(c *cli.Context) error {
	q := o.Query
	for _, pair := range [][2]string{
		{"sidecar", "no-sidecars"}, {"since-last-start", "crash"}, {"raw", "json"}, {"follow", "crash"}, {"follow", "verify"},
	} {
		if c.IsSet(pair[0]) && c.IsSet(pair[1]) {
			return console.UsageError("--%s and --%s cannot be used together", pair[0], pair[1])
		}
	}
	switch {
	case c.IsSet("n") && c.Int("n") < 0:
		return console.UsageError("-n: %d is less than 0", c.Int("n"))
	case q.Stream != "" && q.Stream != "OUT" && q.Stream != "ERR":
		return console.UsageError("--stream: %q is neither out nor err", c.String("stream"))
	case c.IsSet("crash") && q.Crash < 1:
		return console.UsageError("--crash: %d is less than 1", q.Crash)
	case q.Instance != nil && *q.Instance < 0:
		return console.UsageError("--instance: %d is less than 0", *q.Instance)
	case !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until):
		return console.UsageError("--since must be before --until")
	case q.Service && (o.Verify || q.Process != "" || q.Sidecar != "" || q.Crash > 0 || q.SinceLastStart):
		return console.UsageError("--service cannot be used with --process, --sidecar, --crash, --since-last-start or --verify")
	case o.several() && (o.Verify || q.Crash > 0):
		return console.UsageError("--crash and --verify need exactly one app")
	}
	return nil
}

// grep makes the daemon leave out lines that cannot match. This command matches the
// others and counts them.
func (o *options) grep(re *regexp.Regexp) {
	text, _ := re.LiteralPrefix()
	o.Query.Contains = text
	if text == re.String() { // ^text$ has the same prefix, and matches less
		return
	}
	o.Grep = re
	if !o.Query.Follow && o.Query.Newest >= 0 && o.Query.Crash == 0 {
		o.Keep, o.Query.Newest = o.Query.Newest, -1
	}
}

func runLogs(ctx context.Context, o options, api *client.Client, out *console.Console) error {
	apps, err := o.apps(ctx, api)
	if err != nil {
		return err
	}
	if o.Verify {
		return verifyLog(ctx, apps[0], api, out)
	}
	return o.show(ctx, apps, api, out)
}

// Follow shows the newest log lines of an app, then new ones until ctx ends.
func Follow(ctx context.Context, a v3.App, api *client.Client, out *console.Console) error {
	o := options{Names: []string{a.Name}, Query: client.LogQuery{Newest: firstLines, Follow: true}}
	return o.show(ctx, []v3.App{a}, api, out)
}

// show writes the lines of apps.
func (o options) show(ctx context.Context, apps []v3.App, api *client.Client, out *console.Console) error {
	p := newLinePrinter(o, out)
	p.o.Query.Notice = oneNotice(p)
	var err error
	if o.several() {
		err = (&appLogs{o: p.o, api: api, p: p}).run(ctx, apps)
	} else {
		err = oneLog(ctx, apps[0], api, p)
	}
	if ctx.Err() != nil && o.Query.Follow {
		err = nil // Ctrl-C is the usual way to stop following
	}
	return errors.Join(err, p.flush())
}

// oneLog writes the lines of one app, or of one service instance.
func oneLog(ctx context.Context, a v3.App, api *client.Client, p *linePrinter) error {
	o := p.o
	l := &appLog{guid: a.GUID, name: a.Name}
	count, last := 0, [][]byte(nil)
	lines := client.Lines{Flush: p.flush, Line: func(line *v3.Line) error {
		if !o.matches(line) {
			return nil
		}
		count++
		if o.Keep == 0 {
			return p.line(l, line)
		}
		b, err := p.format(nil, l, line)
		last = append(last[max(0, len(last)+1-o.Keep):], b)
		return err
	}}
	if o.Raw && o.Grep == nil {
		lines.Texts = func(texts []byte) error {
			count++
			return p.texts(texts)
		}
	}
	err := api.Logs().Stream(ctx, a.GUID, o.Query, lines)
	if err == nil && o.Query.Crash > 0 && count == 0 {
		p.say("Crash %d of %s has no lines: its processes printed nothing, or no stored line matches", o.Query.Crash, a.Name)
	}
	if bad := (*client.Error)(nil); o.Query.Crash > 0 && errors.As(err, &bad) && bad.Status == http.StatusBadRequest {
		_, why, _ := strings.Cut(bad.Detail, ": ") // the part before it is about the query
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("app %s: %s", a.Name, why), Advice: "To list the crashes: dew crashes " + a.Name}
	}
	if o.Query.Follow && isGone(err) && !o.Query.Service {
		p.say("%s", deletedText(a.Name))
		return nil
	}
	for _, b := range last {
		if _, werr := p.w.Write(b); werr != nil {
			return errors.Join(err, werr)
		}
	}
	return err
}

// matches reports whether a line matches --grep. A line about missing lines always
// matches.
func (o options) matches(l *v3.Line) bool {
	return o.Grep == nil || o.Grep.Match(l.Text) || slices.Contains(l.Flags, v3.FlagGap)
}

// apps finds the apps to show. A service instance counts as one.
func (o options) apps(ctx context.Context, api *client.Client) ([]v3.App, error) {
	if o.Query.Service {
		i, err := command.FindService(ctx, api, o.Names[0])
		if err == nil && i.Type == v3.ServiceUserProvided {
			err = fmt.Errorf("service instance %s has no logs: it is user-provided and does not run here", i.Name)
		}
		return []v3.App{{GUID: i.GUID, Name: o.Names[0]}}, err
	}
	if o.All {
		return api.Apps().List(ctx)
	}
	var apps []v3.App
	for _, name := range o.Names {
		a, err := command.FindApp(ctx, api, name)
		if err == nil && o.Query.Sidecar != "" {
			err = checkSidecar(ctx, a, o.Query.Sidecar, api)
		}
		if err != nil {
			return nil, err
		}
		apps = append(apps, a)
	}
	return apps, nil
}

// verifyLog checks the stored log of an app.
func verifyLog(ctx context.Context, a v3.App, api *client.Client, out *console.Console) error {
	r, err := api.Logs().Verify(ctx, a.GUID)
	if err != nil {
		return err
	}
	if out.JSON {
		if err := out.Encode(r); err != nil {
			return err
		}
	} else {
		out.Say("Checked %d lines (numbers %d to %d) in %d frames of %d segments (%s), from %d streams. Gaps: %d, missing lines: %d",
			r.Lines, r.First, r.Last, r.Frames, r.Segments, console.Bytes(r.Bytes), r.Streams, r.Gaps, r.Lost)
	}
	if r.OK {
		return nil
	}
	return fmt.Errorf("the log of %s is damaged or lines are missing:\n%s", a.Name, strings.Join(r.Problems, "\n"))
}
