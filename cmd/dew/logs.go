package main

import (
	"bufio"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

const (
	recentLines = 1000 // of --recent, as cf has it
	firstLines  = 10   // before following
	newEvents   = 50
)

func logCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{
			name: "logs", args: "[APP]", category: "Logs", usage: "follow what an app and its sidecars print",
			about: "Lines are <time> [source/instance] OUT|ERR text. Following goes on when the app or dewd is restarted.\n" +
				"Times are durations before now (10m, 2h30m, 3d), moments (2006-01-02T15:04:05Z, 2006-01-02) or times of the day (15:04).",
			flags: logFlags(),
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			o, err := readLogsOptions(c, time.Now())
			if err != nil {
				return err
			}
			out.color = out.color && !c.Bool("no-color")
			return runLogs(c.Context, o, ask, out)
		}),
		g.command(verb{name: "events", args: "APP", category: "Logs", usage: "list what happened to an app, newest first", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runEvents(c.Context, c.Args().First(), ask, out)
			}),
	}
}

func logFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "service", Usage: "lines of the database of a service `instance`, instead of an app's"},
		boolFlag("recent", "show the newest lines and end"),
		&cli.IntFlag{Name: "n", Aliases: []string{"lines"}, DefaultText: fmt.Sprintf("%d, with --recent %d, with --since and the like all", firstLines, recentLines), Usage: "`count` of old lines"},
		&cli.StringFlag{Name: "since", Usage: "lines from a `time` on"},
		&cli.StringFlag{Name: "until", Usage: "lines before a `time`"},
		boolFlag("since-last-start", "lines since the running instances were started"),
		&cli.IntFlag{Name: "crash", Usage: "last lines before a crash and its record; `number` 1 is the newest of `dew crashes`"},
		&cli.StringFlag{Name: "process", Usage: "lines of a process `type`, such as web"},
		&cli.StringFlag{Name: "sidecar", Usage: "lines of the sidecar with the `name`"},
		boolFlag("no-sidecars", "no lines of sidecars"),
		&cli.IntFlag{Name: "instance", Aliases: []string{"i"}, Usage: "lines of the instance with the `index`"},
		&cli.StringFlag{Name: "stream", Usage: "`out` or err"},
		&cli.StringFlag{Name: "grep", Usage: "lines that match a regular `expression`"},
		boolFlag("json", "one JSON object per line"),
		boolFlag("raw", "the text alone, byte for byte"),
		boolFlag("no-color", "no colours, also on a terminal"),
		boolFlag("verify", "check that the stored log is whole; exit status 1 if lines are damaged or missing. Lines that --log-retention, --log-age or a rate limit dropped do not count"),
	}
}

type logsOptions struct {
	Name   string // of the app, or with Query.Service of the service instance
	Query  client.LogQuery
	Grep   *regexp.Regexp // nil: no line is left out
	Keep   int            // with Grep, of old lines that match; 0: all
	Raw    bool
	Verify bool
}

// readLogsOptions reads the flags; now is what durations are before.
func readLogsOptions(c *cli.Context, now time.Time) (logsOptions, error) {
	o := logsOptions{Name: c.Args().First(), Raw: c.Bool("raw"), Verify: c.Bool("verify")}
	if (o.Name == "") == (c.String("service") == "") {
		return o, usage("logs needs APP, or --service with the name of a service instance")
	}
	q := &o.Query
	*q = client.LogQuery{
		Newest: firstLines, Follow: !c.Bool("recent"), Process: c.String("process"), Sidecar: c.String("sidecar"),
		NoSidecars: c.Bool("no-sidecars"), Stream: strings.ToUpper(c.String("stream")), SinceLastStart: c.Bool("since-last-start"), Crash: c.Int("crash"),
	}
	if o.Name == "" {
		o.Name, q.Service = c.String("service"), true
	}
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if !c.IsSet(name) {
			continue
		}
		t, err := readMoment(c.String(name), now)
		if err != nil {
			return o, usage("--%s: %w", name, err)
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
	case !q.Since.IsZero() || q.SinceLastStart || q.Crash > 0:
		q.Newest = -1
	case !q.Follow:
		q.Newest = recentLines
	}
	if c.IsSet("grep") {
		re, err := regexp.Compile(c.String("grep"))
		if err != nil {
			return o, usage("--grep: %w", err)
		}
		o.grep(re)
	}
	return o, o.check(c)
}

// check refuses what makes no sense before anybody is asked.
func (o logsOptions) check(c *cli.Context) error {
	q := o.Query
	switch {
	case c.IsSet("n") && c.Int("n") < 0:
		return usage("-n: %d is less than 0", c.Int("n"))
	case q.Stream != "" && q.Stream != "OUT" && q.Stream != "ERR":
		return usage("--stream: %q is neither out nor err", c.String("stream"))
	case q.Sidecar != "" && q.NoSidecars:
		return usage("--sidecar and --no-sidecars exclude each other")
	case q.SinceLastStart && q.Crash > 0:
		return usage("--since-last-start and --crash exclude each other")
	case c.IsSet("crash") && q.Crash < 1:
		return usage("--crash: %d is less than 1", q.Crash)
	case q.Instance != nil && *q.Instance < 0:
		return usage("--instance: %d is less than 0", *q.Instance)
	case !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until):
		return usage("--since must be before --until")
	case q.Service && (o.Verify || q.Process != "" || q.Sidecar != "" || q.Crash > 0 || q.SinceLastStart):
		return usage("--service takes neither --process, --sidecar, --crash, --since-last-start nor --verify")
	case o.Raw && c.Bool("json"):
		return usage("--raw and --json exclude each other")
	}
	return nil
}

// grep has the daemon leave out what cannot match, and the rest be looked at
// here. Then it is here, too, that matching lines are counted.
func (o *logsOptions) grep(re *regexp.Regexp) {
	text, _ := re.LiteralPrefix()
	o.Query.Contains = text
	if text == re.String() { // ^text$ has that prefix, too, and says more
		return
	}
	o.Grep = re
	if !o.Query.Follow && o.Query.Newest >= 0 {
		o.Keep, o.Query.Newest = o.Query.Newest, -1
	}
}

// readMoment reads a time as people write it.
func readMoment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d >= 0 && d < maxDays*time.Hour {
			return now.Add(-24 * d), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil && t.Year() >= 1970 && t.Year() < 2262 {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1) // logs have no future
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 10m, 3d, 15:04, 2006-01-02 or 2006-01-02T15:04:05Z", text)
}

const maxDays = 100 * 366

func runLogs(ctx context.Context, o logsOptions, ask *client.Client, out *console) error {
	guid, err := o.guid(ctx, ask)
	if err != nil {
		return err
	}
	if o.Verify {
		return verifyLog(ctx, v3.App{GUID: guid, Name: o.Name}, ask, out)
	}
	p := &linePrinter{o: o, out: out, w: bufio.NewWriterSize(out.out, 64<<10)}
	o.Query.Notice = func(text string) { out.say("%s", text) }
	err = ask.Logs(ctx, guid, o.Query, client.Lines{Line: p.line, Flush: p.flush})
	if ctx.Err() != nil && o.Query.Follow {
		return p.flush() // the usual way to end it
	}
	if err != nil {
		return err
	}
	return p.finish()
}

// guid is whose lines they are.
func (o logsOptions) guid(ctx context.Context, ask *client.Client) (string, error) {
	if o.Query.Service {
		i, err := findService(ctx, ask, o.Name)
		if err == nil && i.Type == v3.ServiceUserProvided {
			err = fmt.Errorf("service instance %s is user-provided: nothing of it runs here that could print", o.Name)
		}
		return i.GUID, err
	}
	a, err := findApp(ctx, ask, o.Name)
	return a.GUID, err
}

// verifyLog tells whether an app's log is as it was written.
func verifyLog(ctx context.Context, a v3.App, ask *client.Client, out *console) error {
	r, err := ask.VerifyLog(ctx, a.GUID)
	if err != nil {
		return err
	}
	if out.json {
		if err := out.encode(r); err != nil {
			return err
		}
	} else {
		out.say("%d lines, numbers %d to %d, in %d frames of %d segments (%s), of %d streams; %d gaps tell of %d missing lines",
			r.Lines, r.First, r.Last, r.Frames, r.Segments, bytesText(r.Bytes), r.Streams, r.Gaps, r.Lost)
	}
	if r.OK {
		return nil
	}
	return fmt.Errorf("the log of %s is damaged or has lines missing:\n%s", a.Name, strings.Join(r.Problems, "\n"))
}

// linePrinter writes lines as they come, many at a time.
type linePrinter struct {
	o   logsOptions
	out *console
	w   *bufio.Writer
	buf []byte
	old [][]byte // lines that match, when only the newest of them are wanted
}

// line writes one line. A reader that is gone ends the command.
func (p *linePrinter) line(l *v3.Line) error {
	if p.o.Grep != nil && !p.o.Grep.Match(l.Text) && !slices.Contains(l.Flags, v3.FlagGap) {
		return nil
	}
	b, err := p.format(p.buf[:0], l)
	if err != nil {
		return err
	}
	p.buf = b
	if p.o.Keep == 0 {
		_, err = p.w.Write(b)
		return err
	}
	if len(p.old) == p.o.Keep {
		p.old = p.old[1:]
	}
	p.old = append(p.old, slices.Clone(b))
	return nil
}

func (p *linePrinter) format(b []byte, l *v3.Line) ([]byte, error) {
	switch {
	case p.out.json:
		text, err := l.MarshalJSON()
		if err != nil {
			return b, fmt.Errorf("cannot write line %d: %w", l.Seq, err)
		}
		b = append(b, text...)
	case p.o.Raw:
		b = append(b, l.Text...)
		if slices.Contains(l.Flags, v3.FlagCut) {
			return b, nil // it goes on in the next
		}
	default:
		b = appendLine(b, l, look{color: p.out.color, screen: p.out.screen})
	}
	return append(b, '\n'), nil
}

func (p *linePrinter) flush() error { return p.w.Flush() }

// finish writes what was held back.
func (p *linePrinter) finish() error {
	for _, b := range p.old {
		if _, err := p.w.Write(b); err != nil {
			return err
		}
	}
	return p.w.Flush()
}

// look is how lines are to look.
type look struct {
	color  bool
	screen bool // a terminal would obey what is in them
}

const lineTime = "2006-01-02T15:04:05.000Z07:00"

// appendLine appends a line as people read it:
// <time> [APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0] OUT text.
func appendLine(b []byte, l *v3.Line, as look) []byte {
	b = l.Time.Local().AppendFormat(b, lineTime)
	b = append(b, ' ')
	if as.color {
		b = append(b, sourceColour(l.Source)...)
	}
	b = fmt.Appendf(b, "[%s/%d]", l.Source, l.Index)
	if as.color {
		b = append(b, plain...)
	}
	b = append(b, ' ')
	if as.color && l.Stream == "ERR" {
		b = append(append(append(b, red...), l.Stream...), plain...)
	} else {
		b = append(b, l.Stream...)
	}
	b = append(b, ' ')
	if as.screen {
		return appendShown(b, l.Text, as.color)
	}
	return append(b, l.Text...)
}

// formatLine is one line as appendLine writes it.
func formatLine(l v3.Line, as look) string { return string(appendLine(nil, &l, as)) }

// sourceColours are for an app's processes and sidecars; the platform has one of
// its own, and errors have red.
var sourceColours = []string{yellow, "\x1b[34m", "\x1b[35m", "\x1b[92m", "\x1b[93m", "\x1b[94m", "\x1b[95m"}

// sourceColour is the same for a source wherever it is seen.
func sourceColour(source string) string {
	switch {
	case !strings.HasPrefix(source, "APP/"):
		return cyan
	case source == "APP/PROC/WEB":
		return green
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(source)) // it never fails
	return sourceColours[int(h.Sum32()%uint32(len(sourceColours)))]
}

func runEvents(ctx context.Context, name string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	events, err := ask.Events(ctx, a.GUID, newEvents)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(append([]v3.Event{}, events...))
	}
	table := [][]string{{"time", "event", "actor", "description"}}
	for _, e := range events {
		table = append(table, []string{e.CreatedAt.Local().Format(time.DateTime), e.Type, e.Actor.Name, describe(e.Data)})
	}
	return out.table(table)
}

// described are the facts of an event that people want to see, in this order.
var described = []string{
	"index", "reason", "cell_id", "instance", "exit_description", "exit_status", "recursive", "disk_quota", "instances", "memory", "state", "command",
}

// describe writes the data of an event on one line. A change is described by what
// was asked for.
func describe(data map[string]any) string {
	if asked, ok := data["request"].(map[string]any); ok {
		data = asked
	}
	var out []string
	for _, key := range described {
		if v, ok := data[key]; ok {
			out = append(out, key+": "+flat(v))
		}
	}
	if vars, ok := data["environment_json"].(map[string]any); ok {
		out = append(out, "environment_json: "+strings.Join(slices.Sorted(maps.Keys(vars)), ", "))
	}
	return strings.Join(out, ", ")
}

func flat(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return compact(v)
}
