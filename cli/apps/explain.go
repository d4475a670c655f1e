package apps

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/verdict"
)

// WhyCommands explain crashes, exit statuses and signals.
func WhyCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "why", Args: "APP", Category: "Logs and crashes", Usage: "Explain why an app crashed or is not running",
			About: "Shows the cause of the newest crash in one sentence, what happened when, the memory of each process, the last lines, and what to do. Without a crash it explains the current state.\n\nExamples:\n   dew why shop\n   dew why shop --crash 2\n   dew why shop --json",
			Flags: []cli.Flag{
				&cli.IntFlag{Name: "crash", Value: 1, Usage: "Explain the crash with this `number`; 1 is the newest"},
				command.JSONFlag(),
			},
		}, func(c *cli.Context, ask *client.Client, out *console.Console) error {
			if c.Int("crash") < 1 {
				return console.UsageError("--crash: %d is less than 1", c.Int("crash"))
			}
			return runWhy(c.Context, whyOptions{Name: c.Args().First(), Crash: c.Int("crash"), Chosen: c.IsSet("crash")}, ask, out)
		}),
		g.WithoutClient(command.Verb{
			Name: "explain", Args: "STATUS", Category: "Logs and crashes", Usage: "Explain an exit status or a signal",
			About: "Examples:\n   dew explain 137\n   dew explain SIGTERM",
		}, func(c *cli.Context) error {
			text, err := verdict.Status(c.Args().First())
			if err != nil {
				return console.UsageError("%v", err)
			}
			_, err = fmt.Fprintln(c.App.Writer, console.Capitalize(text))
			return err
		}),
	}
}

type whyOptions struct {
	Name   string
	Crash  int  // from 1, the newest
	Chosen bool // the user gave the number
}

// whyAnswer is the output of dew why --json.
type whyAnswer struct {
	App   string    `json:"app"`
	State string    `json:"state"` // what the app does now, in one sentence
	Crash *v3.Crash `json:"crash,omitempty"`
}

func runWhy(ctx context.Context, o whyOptions, ask *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	return o.explain(ctx, a, ask, out)
}

// Why explains the newest crash of an app and its current state.
func Why(ctx context.Context, a v3.App, ask *client.Client, out *console.Console) error {
	return whyOptions{Name: a.Name, Crash: 1}.explain(ctx, a, ask, out)
}

func (o whyOptions) explain(ctx context.Context, a v3.App, ask *client.Client, out *console.Console) error {
	crashes, total, err := ask.Processes().NewestCrashes(ctx, a.GUID, o.Crash)
	if err != nil {
		return err
	}
	if o.Chosen && o.Crash > total {
		return fmt.Errorf("crash %d of app %s does not exist: %s recorded", o.Crash, a.Name, console.CrashCount(total))
	}
	view, err := ReadView(ctx, ask, a)
	if err != nil {
		return err
	}
	answer := whyAnswer{App: a.Name, State: currentState(view)}
	if len(crashes) >= o.Crash {
		answer.Crash = &crashes[o.Crash-1]
	}
	if out.JSON {
		return out.Encode(answer)
	}
	fmt.Fprintln(out.Out, answer.State)
	if answer.Crash == nil {
		return nil
	}
	fmt.Fprintln(out.Out)
	return printWhy(out, *answer.Crash)
}

// currentState says in one sentence what an app does now.
func currentState(v View) string {
	switch {
	case v.Droplet == "":
		return fmt.Sprintf("%s has no droplet: no build has succeeded yet. To build it: dew push %s", v.Name, v.Name)
	case v.State == v3.AppStopped:
		return fmt.Sprintf("%s is stopped. To start it: dew start %s", v.Name, v.Name)
	}
	total, running := 0, 0
	var problems []string
	for _, p := range v.Processes {
		for _, in := range p.Instances {
			total++
			if in.State == v3.StateRunning {
				running++
				continue
			}
			problems = append(problems, instanceProblem(p, in))
		}
	}
	switch {
	case total == 0:
		return fmt.Sprintf("%s has no instances. To run one: dew scale %s -i 1", v.Name, v.Name)
	case len(problems) > 0:
		return fmt.Sprintf("%s: %d of %d instances running; %s", v.Name, running, total, strings.Join(problems, "; "))
	case len(v.Routes) == 0:
		return fmt.Sprintf("%s is running (%d of %d instances) and has no route. To add one: dew map-route %s DOMAIN --hostname NAME", v.Name, running, total, v.Name)
	}
	return fmt.Sprintf("%s is running: %d of %d instances", v.Name, running, total)
}

// instanceProblem says why an instance is not running.
func instanceProblem(p processView, in instanceView) string {
	name := fmt.Sprintf("%s/%d", p.Type, in.Index)
	switch {
	case in.GivenUp:
		return name + " crashed too often, and dew does not restart it"
	case in.NextStart.After(time.Now()):
		return fmt.Sprintf("%s crashed; its %s", name, console.NextStart(in.NextStart, time.Now()))
	case in.State == v3.StateStarting:
		return fmt.Sprintf("%s is starting (health check: %s)", name, p.HealthCheck)
	case in.Details != "":
		return fmt.Sprintf("%s is %s: %s", name, strings.ToLower(in.State), in.Details)
	}
	return name + " is " + strings.ToLower(in.State)
}

// printWhy prints one crash: the sentence, what happened when, the memory, the last
// lines and what to do.
func printWhy(out *console.Console, c v3.Crash) error {
	title := func(text string) { fmt.Fprintf(out.Out, "\n%s\n", out.Paint(console.Bold, text)) }
	fmt.Fprintln(out.Out, out.Paint(console.Red, console.Capitalize(c.Verdict.Sentence)))
	for _, e := range c.Verdict.Evidence {
		fmt.Fprintf(out.Out, "  - %s\n", e)
	}
	title("What happened")
	if err := out.Table(timeline(c)); err != nil {
		return err
	}
	if rows := memoryRows(c); len(rows) > 0 {
		title("Memory")
		if err := out.Table(rows); err != nil {
			return err
		}
	}
	for _, o := range c.Output {
		lines := append(append([]string{}, o.Stdout...), o.Stderr...)
		title("Last lines of " + o.Source)
		for _, l := range lines {
			fmt.Fprintf(out.Out, "  %s\n", console.Printable(l))
		}
	}
	if c.Verdict.Advice != "" {
		title("What to do")
		fmt.Fprintf(out.Out, "  %s\n", c.Verdict.Advice)
	}
	return nil
}

// timeline has the events of a crash with their times.
func timeline(c v3.Crash) [][]string {
	var rows [][]string
	add := func(at time.Time, text string) {
		rows = append(rows, []string{"  " + at.Local().Format(console.LineTime), text})
	}
	if !c.StartedAt.IsZero() {
		add(c.StartedAt, "the instance started")
	}
	add(c.First.At, exitText(c.First, c))
	last := c.First.At
	for _, f := range c.Followers {
		add(f.At, exitText(f, c))
		last = f.At
	}
	switch {
	case c.GivenUp:
		add(c.CrashedAt, "dew does not restart it: it crashed too often")
	case c.NextStart.After(last):
		add(c.NextStart, "next start")
	default:
		add(last, "dew starts a new instance")
	}
	return rows
}

// barWidth is the number of characters of a full bar.
const barWidth = 20

// memoryRows has the peak memory of each process, with a bar for the part of its limit.
func memoryRows(c v3.Crash) [][]string {
	var rows [][]string
	add := func(name string, peak, limit int64, kinds string) {
		switch {
		case peak == 0:
		case limit == 0:
			rows = append(rows, []string{"  " + name, "peak " + console.Bytes(peak), "no limit of its own", "", kinds})
		default:
			rows = append(rows, []string{"  " + name, "peak " + console.Bytes(peak), "of " + console.Bytes(limit), bar(peak, limit), kinds})
		}
	}
	for _, e := range append([]v3.CrashExit{c.First}, c.Followers...) {
		add(e.Source, e.MemoryPeak, e.MemoryLimit, memoryKinds(e))
	}
	add("whole instance", c.MemoryPeak, c.MemoryLimit, "")
	return rows
}

// memoryKinds says what the memory of a process was at the last measurement, or nothing
// if there was none.
func memoryKinds(e v3.CrashExit) string {
	u := e.Usage
	if u == nil || u.MeasuredAt.IsZero() || u.MeasuredAt.After(e.At) {
		return ""
	}
	return fmt.Sprintf("%s before: %s of its own, %s cached files, %s kernel", e.At.Sub(u.MeasuredAt).Round(time.Second), console.Bytes(u.Anon), console.Bytes(u.File), console.Bytes(u.Kernel))
}

func bar(used, limit int64) string {
	n := int(min(used, limit) * barWidth / limit)
	return strings.Repeat("█", n) + strings.Repeat("░", barWidth-n)
}
