package smoketest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
	"github.com/dewrun/dew/cli/push"
	"github.com/dewrun/dew/smoke"
)

// Options are the arguments of dew smoke.
type Options struct {
	Args     []string
	Manifest push.ManifestOptions // variables only
	Timeout  time.Duration
	JUnit    string
	Bundle   string
	NoBundle bool
	Keep     bool
	NoSkip   bool
	Private  bool
	Dewd     string
	Quiet    bool
	Verbose  bool
	Force    bool // of init
	Watch    bool
}

const aboutSmoke = `A folder says in smoke.yml what must hold; docs/smoke.md tells how. DIR/... is every folder below that has one, but for those that say alone: true. A folder without smoke.yml is pushed and awaited; of a manifest that is given, too, the smoke.yml beside it is used.

Everything happens in an org of its own, which is removed at the end. Without a daemon to talk to, a private one is started, and ends with the command. dew smoke init writes a first smoke.yml.

A folder that needs a program that is not on this machine (needs: in smoke.yml) is skipped with the reason; --no-skip makes that a failure, for CI.

The exit status is that of the first failure: 1 build or before failed, 2 a smoke.yml or flag is wrong, 3 staging, 4 crashed, 5 timed out, 6 daemon unreachable, 7 out of memory, 8 a check does not hold, 9 infrastructure.

Examples:
   dew smoke
   dew smoke --junit smoke.xml examples/...
   dew smoke --private --keep shop/manifest.yml
   dew smoke init shop`

// Commands is dew smoke.
func Commands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.WithoutClient(command.Verb{
		Name: "smoke", Args: "[DIR|DIR/...|MANIFEST]...", Category: "Push", Usage: "push the apps of a folder, check what its smoke.yml says, tell how that went, clean up", About: aboutSmoke,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "var", Usage: "`name=value` for ((name)) in the manifests; may be repeated"},
			&cli.StringSliceFlag{Name: "vars-file", Usage: "`path` of a YAML file of variables; may be repeated, and --var goes before it"},
			&cli.DurationFlag{Name: "timeout", DefaultText: "what smoke.yml says, else 5m", Usage: "`time` for each folder"},
			&cli.StringFlag{Name: "junit", Usage: "write a JUnit report to `file`"},
			&cli.StringFlag{Name: "bundle", DefaultText: "smoke-FOLDER.tar.gz here", Usage: "`file` for what is kept of a failure: logs, events, exit records, environment without secrets"},
			command.BoolFlag("no-bundle", "keep nothing of a failure"),
			command.BoolFlag("keep", "leave apps, services and a private daemon, and say how to reach them"),
			command.BoolFlag("no-skip", "fail if a folder needs a program that is not on this machine, instead of skipping the folder"),
			command.BoolFlag("private", "start a private daemon, also if one answers"),
			&cli.StringFlag{Name: "dewd", Usage: "`path` of the private daemon's program (default: beside dew, or in PATH)"},
			command.BoolFlag("watch", "test again whenever something in the folders changes, until Ctrl-C; a private daemon stays for all tests"),
			command.BoolFlag("quiet", "show no log lines and no progress"),
			&cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "show what scripts print, and every try of a check", DisableDefaultText: true},
			command.BoolFlag("force", "with init: replace a smoke.yml that is there"),
			command.JSONFlag(),
		},
	}, func(c *cli.Context) error {
		o := Options{
			Args:     c.Args().Slice(),
			Manifest: push.ManifestOptions{Vars: c.StringSlice("var"), VarsFiles: c.StringSlice("vars-file")},
			Timeout:  c.Duration("timeout"), JUnit: c.String("junit"), Bundle: c.String("bundle"), NoBundle: c.Bool("no-bundle"), Keep: c.Bool("keep"),
			NoSkip: c.Bool("no-skip"), Private: c.Bool("private"), Dewd: c.String("dewd"), Quiet: c.Bool("quiet"), Verbose: c.Bool("v"), Force: c.Bool("force"), Watch: c.Bool("watch"),
		}
		if len(o.Args) > 0 && o.Args[0] == "init" {
			return runSmokeInit(o, g.Out)
		}
		return runSmoke(c.Context, o, g)
	})}
}

func (o Options) check() error {
	switch {
	case o.Timeout < 0:
		return console.UsageError("--timeout: %s is less than nothing", o.Timeout)
	case o.NoBundle && o.Bundle != "":
		return console.UsageError("--bundle and --no-bundle exclude each other")
	case o.Watch && o.Keep:
		return console.UsageError("--watch and --keep exclude each other: every test would leave its apps")
	case o.Force:
		return console.UsageError("--force goes with dew smoke init")
	}
	return nil
}

// runSmoke tests folders and tells how that went, once or after every change.
func runSmoke(ctx context.Context, o Options, g *command.Set) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	folders, err := smoke.Find(o.Args) // before a daemon is started
	if err != nil {
		return push.SmokeFailure(err)
	}
	if _, err := push.Variables(o.Manifest); err != nil {
		return err
	}
	// A terminal that is closed must not leave a daemon behind, nor a reader of our
	// output that ends before us.
	ctx, unhook := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer unhook()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	patient, stop := patientContext(ctx, g.Out)
	defer stop()
	d, err := Open(ctx, g, o)
	if err != nil {
		return push.SmokeFailure(err)
	}
	defer func() {
		if cerr := d.close(patient, o.Keep); cerr != nil {
			g.Out.Warn(command.Explain(push.SmokeFailure(cerr))) // also when an interruption leaves no other words
			err = cmp.Or(err, error(&console.Failure{Status: command.StatusOf(push.SmokeFailure(cerr))}))
		}
	}()
	if o.Watch {
		return d.watch(ctx, patient, folders)
	}
	return d.test(ctx, patient, folders)
}

// test tests folders once.
func (d *Daemon) test(ctx, patient context.Context, folders []smoke.Folder) error {
	o := d.o
	vars, err := push.Variables(o.Manifest)
	if err != nil {
		return err
	}
	s := &reporter{o: o, out: d.g.Out, single: len(folders) == 1}
	cfg := smoke.Config{
		Ask: d.client, Enter: d.Enter, Variables: vars, Timeout: o.Timeout, Keep: o.Keep, NoSkip: o.NoSkip, Patient: patient, Say: s.say, Line: s.line,
	}
	if o.Quiet {
		cfg.Line = nil
	}
	if o.Verbose {
		cfg.Script, cfg.Tried = d.g.Out.Err, func(err error) { s.say("   not yet: %v", err) }
	}
	if !o.NoBundle {
		cfg.Bundle, cfg.BundleAlways = d.bundler(len(folders) == 1), o.Bundle != ""
	}
	return s.report(smoke.Run(ctx, cfg, folders))
}

// watch tests folders, and again whenever something below them changes, until ctx
// ends. The daemon stays the same. A test writes files itself, so what changes while
// it runs does not count.
func (d *Daemon) watch(ctx, patient context.Context, folders []smoke.Folder) error {
	for {
		err := d.test(ctx, patient, folders)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			d.g.Out.Say("dew: %s", command.Explain(err))
		}
		var paths []string
		for _, f := range folders {
			paths = append(append(paths, f.Dir), f.Manifests...)
		}
		w, werr := push.NewWatcher(append(paths, d.o.Manifest.VarsFiles...))
		if werr != nil {
			return werr
		}
		d.g.Out.Say("Watching for changes; Ctrl-C ends it")
		changed, werr := w.Wait(ctx)
		if werr := errors.Join(werr, w.Close()); werr != nil || ctx.Err() != nil {
			return cmp.Or(werr, err)
		}
		d.g.Out.Say("\n%s changed", changed)
		now, ferr := smoke.Find(d.o.Args)
		if ferr != nil {
			d.g.Out.Warn(command.Explain(push.SmokeFailure(ferr))) // it may be half written: the next change mends it
			continue
		}
		folders = now
	}
}

// patientContext gives a context that outlives the first interruption, which only ends
// ctx, and not the second.
func patientContext(ctx context.Context, out *console.Console) (context.Context, func()) {
	patient, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for _, text := range []string{"Interrupted: cleaning up; once more gives up", "Given up: something may be left"} {
			select {
			case <-signals:
				out.Say("%s", text)
			case <-patient.Done():
				return
			}
		}
		giveUp()
	}()
	return patient, func() {
		signal.Stop(signals)
		giveUp()
	}
}

// reporter tells what goes on.
type reporter struct {
	o      Options
	out    *console.Console
	single bool // there is one folder
}

func (s *reporter) say(format string, args ...any) {
	if s.o.Quiet {
		return
	}
	text := fmt.Sprintf(format, args...)
	if s.out.ErrTerminal {
		text = console.Printable(text)
	}
	s.out.Say("%s", text)
}

// line shows a line of an app.
func (s *reporter) line(app string, l *v3.Line) {
	if l.Source == "RTR" && !s.o.Verbose {
		return // the checks tell of their requests
	}
	prefix := "   "
	if app != "" {
		prefix += app + " "
	}
	s.out.Say("%s%s", prefix, console.AppendLine(nil, l, console.LineStyle{Terminal: s.out.ErrTerminal}))
}

// report writes the report where it is wanted, and makes the first failure the error.
func (s *reporter) report(r smoke.Report) error {
	if s.o.JUnit != "" {
		if err := writeWhole(s.o.JUnit, r.JUnit()); err != nil {
			return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot write the JUnit report: %w", err)}
		}
	}
	if err := s.print(r); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	folder, step, bad := r.Failed()
	if !bad {
		return nil
	}
	if s.o.Quiet && step.Output != "" {
		s.out.Say("%s", strings.TrimRight(step.Output, "\n")) // else it was shown when it happened
	}
	where := folder.Folder + ": " + step.Name
	if step.App != "" {
		where += " (app " + step.App + ")"
	}
	var todo []string
	if step.Todo != "" {
		todo = append(todo, step.Todo)
	}
	if folder.Bundle != "" {
		todo = append(todo, "logs, events and exit records are in "+folder.Bundle)
	}
	if n := r.FailedFolders() - 1; n > 0 {
		todo = append(todo, fmt.Sprintf("%d more failed: the table has them all", n))
	}
	return &console.Failure{Status: step.Status, Err: fmt.Errorf("%s: %s", where, step.Detail), Advice: strings.Join(todo, "\n     ")}
}

func (s *reporter) print(r smoke.Report) error {
	if s.out.JSON {
		return s.out.Encode(r)
	}
	rows := r.Rows()
	if s.single {
		for i := range rows {
			rows[i] = rows[i][1:]
		}
	}
	if s.out.OutTerminal {
		for _, row := range rows {
			for i := range row {
				row[i] = console.Printable(row[i])
			}
		}
	}
	if err := s.out.Table(rows); err != nil {
		return err
	}
	ok, failed, skipped := r.Counts()
	fmt.Fprintf(s.out.Out, "%d ok, %d failed, %d skipped\n", ok, failed, skipped)
	return nil
}

// writeWhole replaces a file in one step.
func writeWhole(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	_, werr := f.Write(text)
	if err := errors.Join(werr, f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), name)
}
