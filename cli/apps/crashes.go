package apps

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// CrashCommands show why instances crashed, and send signals to processes.
func CrashCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "crashes", Args: "APP", Category: "Logs and crashes", Usage: "Show why instances of an app crashed, newest first",
			About: "dewd keeps the newest records of each instance index (100 by default, see dewd --crash-records).\n\nExamples:\n   dew crashes shop\n   dew crashes shop --all\n   dew crashes shop -n 1 --json",
			Flags: []cli.Flag{
				&cli.IntFlag{Name: "n", Aliases: []string{"count"}, DefaultText: fmt.Sprintf("%d, with --json all", firstCrashes), Usage: "Show only the newest `count` records; 0 shows all"},
				command.BoolFlag("all", "Show all records"),
				command.JSONFlag(),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := crashesOptions{Name: c.Args().First(), Count: c.Int("n")}
			switch {
			case c.IsSet("n") && c.Bool("all"):
				return console.UsageError("--all and -n cannot be used together")
			case o.Count < 0:
				return console.UsageError("-n: %d is less than 0", o.Count)
			case !c.IsSet("n") && !c.Bool("all") && !out.JSON:
				o.Count = firstCrashes
			}
			return runCrashes(c.Context, o, api, out)
		}),
		g.Command(command.Verb{
			Name: "kill", Args: "APP", Category: "Apps", Usage: "Send a signal to a process or sidecar of an app",
			About: "If the process or sidecar exits, dew stops the whole instance and starts a new one.\n\nExamples:\n   dew kill shop --sidecar config-server --wait\n   dew kill shop --signal TERM",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "sidecar", Usage: "Send the signal to the sidecar with this `name` (default: to the process)"},
				&cli.IntFlag{Name: "instance", Usage: "Instance `index`"},
				&cli.StringFlag{Name: "process", Value: "web", Usage: "Process `type`"},
				&cli.StringFlag{Name: "signal", Aliases: []string{"s"}, Value: "KILL", Usage: "Signal `name` or number"},
				command.BoolFlag("wait", "Wait for the crash, show its record, and wait until the instance is running again"),
			},
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			o := killOptions{
				instanceOptions: instanceOptions{Name: c.Args().First(), Process: c.String("process"), Index: c.Int("instance")},
				Sidecar:         c.String("sidecar"), Signal: c.String("signal"), Wait: c.Bool("wait"),
			}
			return runKill(c.Context, o, api, out)
		}),
	}
}

// firstCrashes is the default number of records.
const firstCrashes = 10

type crashesOptions struct {
	Name  string
	Count int // 0: all
}

func runCrashes(ctx context.Context, o crashesOptions, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	crashes, total, err := api.Processes().NewestCrashes(ctx, a.GUID, o.Count)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.Crash{}, crashes...))
	}
	if len(crashes) == 0 {
		out.Say("App %s has not crashed", a.Name)
	}
	for i, c := range crashes {
		printCrash(out, c)
		if c.Kept {
			fmt.Fprintf(out.Out, "    its files are kept. To see them: dew ssh --crash %d %s\n", i+1, a.Name)
		}
	}
	if len(crashes) < total {
		out.Say("Showing the newest %d of %d records. To show all: dew crashes --all %s", len(crashes), total, a.Name)
	}
	return nil
}

func printCrash(out *console.Console, c v3.Crash) {
	line := func(format string, args ...any) { fmt.Fprintf(out.Out, "    "+format+"\n", args...) }
	fmt.Fprintf(out.Out, "%s  %s/%d  %s\n", c.CrashedAt.Local().Format(console.LineTime), c.Type, c.Index, out.Paint(console.Red, cmp.Or(c.Verdict.Sentence, c.Description)))
	if c.Verdict.Advice != "" {
		line("%s", c.Verdict.Advice)
	}
	line("while %s; %s in a row; instance %s", phaseText(c.Phase), console.CrashCount(c.Count), c.Instance)
	line("%s", exitText(c.First, c))
	for _, f := range c.Followers {
		line("then %s", exitText(f, c))
	}
	if c.Order == "together" {
		line("the processes exited too close together to tell which was first")
	}
	for _, l := range c.Lines {
		line("last lines of %s: lines %d to %d of the log", l.Source, l.From, l.To)
	}
	switch {
	case c.GivenUp:
		line("%s", givenUpText)
	case c.NextStart.After(time.Now()) && !c.CrashedAt.After(time.Now()): // otherwise the clock was set back
		line("%s", console.NextStart(c.NextStart, time.Now()))
	case c.NextStart.After(c.CrashedAt.Add(time.Second)):
		line("next start %s after the crash", c.NextStart.Sub(c.CrashedAt).Round(time.Second))
	}
}

// givenUpText is about an instance that dew does not restart.
const givenUpText = "dew does not restart it: it crashed too often. To start it: dew restart APP"

// phaseText is when an instance crashed, after the word "while".
func phaseText(phase string) string {
	if phase == "unwatched" {
		return "dewd was not running"
	}
	return phase
}

// causeTexts describe the causes of exits. Other causes are shown with spaces instead
// of underscores.
var causeTexts = map[string]string{
	causeStartTimeout: "did not become healthy in time",
	"start_failed":    "could not start",
	"capture_failed":  "its output could not be read",
	causeStopTimeout:  "did not exit after SIGTERM, so dew killed it",
	"init_exited":     "the first process of the container exited",
	"runtime_lost":    "the container was lost",
	"removed":         "the cluster removed its Pod",
}

// causeText is why a process exited.
func causeText(e v3.CrashExit, c v3.Crash) string {
	if e.Cause != "peer_exited" {
		return cmp.Or(causeTexts[e.Cause], strings.ReplaceAll(e.Cause, "_", " "))
	}
	first := c.Type
	if c.First.Sidecar != "" {
		first = c.First.Sidecar
	}
	if c.First.Cause == "unhealthy" {
		return "stopped because " + first + " was unhealthy"
	}
	return "stopped because " + first + " exited"
}

// exitText describes the exit of one process of a crash.
func exitText(e v3.CrashExit, c v3.Crash) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: status %d", e.Source, e.Code)
	if s := e.Code - 128; s > 0 && s < 65 {
		if name := unix.SignalName(syscall.Signal(s)); name != "" {
			fmt.Fprintf(&b, " (killed by %s", name)
			if !e.OutOfMemory && e.SentBy == "" && e.Sender == "" && e.Cause != causeStopTimeout {
				fmt.Fprintf(&b, ", or exited with %d", e.Code)
			}
			b.WriteByte(')')
		}
	}
	fmt.Fprintf(&b, ", %s", causeText(e, c))
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if d := e.At.Sub(c.First.At); d > 0 {
		fmt.Fprintf(&b, ", %s later", d.Round(time.Millisecond))
	}
	switch {
	case e.MemoryPeak > 0 && e.MemoryLimit > 0:
		fmt.Fprintf(&b, "; peak memory %s of %s", console.Bytes(e.MemoryPeak), console.Bytes(e.MemoryLimit))
	case e.MemoryPeak > 0:
		fmt.Fprintf(&b, "; peak memory %s", console.Bytes(e.MemoryPeak))
	}
	return b.String()
}

type killOptions struct {
	instanceOptions
	Sidecar string
	Signal  string
	Wait    bool
}

func runKill(ctx context.Context, o killOptions, api *client.Client, out *console.Console) error {
	signal, err := signalName(o.Signal)
	if err != nil {
		return err
	}
	if o.Index < 0 {
		return console.UsageError("--instance: %d is less than 0", o.Index)
	}
	a, err := command.FindApp(ctx, api, o.Name)
	if err != nil {
		return err
	}
	p, err := findProcess(ctx, a, o.Process, api)
	if err != nil {
		return err
	}
	target := "process " + o.Process
	if o.Sidecar != "" {
		target = fmt.Sprintf("sidecar %q", o.Sidecar)
		if err := checkSidecar(ctx, p, o.Sidecar, api); err != nil {
			return err
		}
	}
	k := killed{app: a, process: p, index: o.Index}
	if o.Wait {
		if k.instance, err = instanceAt(ctx, p, o.Index, api); err != nil {
			return err
		}
	}
	if err := api.Processes().Kill(ctx, p.GUID, v3.Kill{Index: o.Index, Sidecar: o.Sidecar, Signal: signal}); err != nil {
		return fmt.Errorf("cannot send the signal to %s in instance %d of %s: %w", target, o.Index, a.Name, err)
	}
	out.Say("Sent SIG%s to %s in instance %d of app %s", signal, target, o.Index, a.Name)
	if o.Wait {
		return k.await(ctx, api, out)
	}
	return nil
}

// signalName is the name of a signal, without SIG, for a name or a number.
func signalName(s string) (string, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if name := unix.SignalName(syscall.Signal(n)); name != "" {
			return strings.TrimPrefix(name, "SIG"), nil
		}
		return "", console.UsageError("--signal: signal %d does not exist", n)
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if unix.SignalNum("SIG"+name) == 0 {
		return "", console.UsageError("--signal: signal %q does not exist; use KILL, TERM, SEGV or another signal", s)
	}
	return name, nil
}

func findProcess(ctx context.Context, a v3.App, processType string, api *client.Client) (v3.Process, error) {
	ps, err := api.Processes().List(ctx, a.GUID)
	if err != nil {
		return v3.Process{}, err
	}
	var types []string
	for _, p := range ps {
		if p.Type == processType {
			return p, nil
		}
		types = append(types, p.Type)
	}
	return v3.Process{}, fmt.Errorf("app %s has no process %q; its processes: %s", a.Name, processType, strings.Join(types, ", "))
}

func checkSidecar(ctx context.Context, p v3.Process, name string, api *client.Client) error {
	sidecars, err := api.Processes().Sidecars(ctx, p.GUID)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range sidecars {
		if s.Name == name {
			return nil
		}
		names = append(names, strconv.Quote(s.Name))
	}
	if len(names) == 0 {
		return fmt.Errorf("process %s has no sidecars", p.Type)
	}
	missing := fmt.Errorf("process %s has no sidecar %q; its sidecars: %s", p.Type, name, strings.Join(names, ", "))
	return command.SuggestNearest(missing, name, sidecars, func(s v3.Sidecar) string { return s.Name })
}
