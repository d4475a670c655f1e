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

const aboutSmoke = `smoke.yml lists the checks of a folder; docs/smoke.md describes it. DIR/... means all folders under DIR that have a smoke.yml, except those with alone: true. In a folder without smoke.yml, dew pushes the apps and waits until they run. With MANIFEST, dew uses the smoke.yml next to it. dew smoke init writes a first smoke.yml.

dew runs each test in a new org and deletes the org at the end. If no daemon is running, dew starts a private one and stops it at the end.

dew skips a folder that needs a program that is missing on this machine (needs: in smoke.yml), and prints the reason. With --no-skip, for CI, the test fails instead.

The exit status is that of the first failure:
   1  a build or before command failed
   2  a smoke.yml or a flag is wrong
   3  staging failed
   4  an app crashed
   5  timed out
   6  cannot connect to the daemon
   7  out of memory
   8  a check failed
   9  infrastructure: this machine lacks a requirement

Examples:
   dew smoke
   dew smoke --junit smoke.xml examples/...
   dew smoke --private --keep shop/manifest.yml
   dew smoke init shop`

// Commands returns dew smoke.
func Commands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.WithoutClient(command.Verb{
		Name: "smoke", Args: "[DIR|DIR/...|MANIFEST]...", Category: "Push", Usage: "Push the apps of a folder, run the checks in its smoke.yml, report the results, clean up", About: aboutSmoke,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "var", Usage: "Value of the variable ((name)) in the manifests, as `name=value`; can be repeated"},
			&cli.StringSliceFlag{Name: "vars-file", Usage: "YAML file of variables, as a `path`; can be repeated; --var overrides it"},
			&cli.DurationFlag{Name: "timeout", DefaultText: "from smoke.yml, or 5m", Usage: "Time limit of each folder: a `duration` such as 2m"},
			&cli.StringFlag{Name: "junit", Usage: "Write a JUnit report to this `file`"},
			&cli.StringFlag{Name: "bundle", DefaultText: "smoke-FOLDER.tar.gz in this folder", Usage: "Store the data of a failure in this `file`: logs, events, exit records, environment without secrets"},
			command.BoolFlag("no-bundle", "Do not store the data of a failure"),
			command.BoolFlag("keep", "Keep the apps, services and private daemon, and print how to use them"),
			command.BoolFlag("no-skip", "Fail if a folder needs a program that is missing on this machine, instead of skipping the folder"),
			command.BoolFlag("private", "Start a private daemon, even if another one is running"),
			&cli.StringFlag{Name: "dewd", Usage: "Program of the private daemon, as a `path` (default: dewd next to dew, or in PATH)"},
			command.BoolFlag("watch", "Test again when something in the folders changes, until Ctrl-C; all tests use the same private daemon"),
			command.BoolFlag("quiet", "Show no log lines and no progress"),
			&cli.BoolFlag{Name: "v", Aliases: []string{"verbose"}, Usage: "Show the output of scripts and every attempt of a check", DisableDefaultText: true},
			command.BoolFlag("force", "With init: replace an existing smoke.yml"),
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
		return console.UsageError("--timeout: %s is less than 0", o.Timeout)
	case o.NoBundle && o.Bundle != "":
		return console.UsageError("--bundle and --no-bundle cannot be used together")
	case o.Watch && o.Keep:
		return console.UsageError("--watch and --keep cannot be used together: every test would keep its apps")
	case o.Force:
		return console.UsageError("--force needs dew smoke init")
	}
	return nil
}

// runSmoke tests folders and reports the results, once or after every change.
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
	// A private daemon must not keep running if the terminal closes, or if the program
	// that reads the output exits.
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
			g.Out.Warn(command.Explain(push.SmokeFailure(cerr))) // after an interruption it is the only message
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
		Client: d.client, Connect: d.Enter, Variables: vars, Timeout: o.Timeout, Keep: o.Keep, NoSkip: o.NoSkip, CleanupContext: patient, Progress: s.say, Line: s.line,
	}
	if o.Quiet {
		cfg.Line = nil
	}
	if o.Verbose {
		cfg.Script, cfg.OnRetry = d.g.Out.Err, func(err error) { s.say("   not yet: %v", err) }
	}
	if !o.NoBundle {
		cfg.Bundle, cfg.BundleAlways = d.bundler(len(folders) == 1), o.Bundle != ""
	}
	return s.report(smoke.Run(ctx, cfg, folders))
}

// watch tests folders, and tests again when a file in them changes, until ctx is done.
// All tests use the same daemon. A test can write files, so changes while it runs do
// not count.
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
		d.g.Out.Say("Watching for changes. To stop, press Ctrl-C")
		changed, werr := w.Wait(ctx)
		if werr := errors.Join(werr, w.Close()); werr != nil || ctx.Err() != nil {
			return cmp.Or(werr, err)
		}
		d.g.Out.Say("\n%s changed", changed)
		now, ferr := smoke.Find(d.o.Args)
		if ferr != nil {
			d.g.Out.Warn(command.Explain(push.SmokeFailure(ferr))) // the file can be half written; the next change can fix it
			continue
		}
		folders = now
	}
}

// patientContext returns a context that survives the first interruption, which cancels
// ctx, but not the second one.
func patientContext(ctx context.Context, out *console.Console) (context.Context, func()) {
	patient, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for _, text := range []string{"Interrupted: cleaning up. Press Ctrl-C again to exit without cleaning up", "Interrupted again: exiting. Some test data may remain"} {
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

// reporter prints progress and results.
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
		return // the checks report their requests
	}
	prefix := "   "
	if app != "" {
		prefix += app + " "
	}
	s.out.Say("%s%s", prefix, console.AppendLine(nil, l, console.LineStyle{Terminal: s.out.ErrTerminal}))
}

// report writes the reports and returns the first failure.
func (s *reporter) report(r smoke.Report) error {
	if s.o.JUnit != "" {
		if err := replaceFile(s.o.JUnit, r.JUnit()); err != nil {
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
		s.out.Say("%s", strings.TrimRight(step.Output, "\n")) // otherwise it was shown when it happened
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
		todo = append(todo, "Logs, events and exit records are in "+folder.Bundle)
	}
	if n := r.FailedFolders() - 1; n > 0 {
		todo = append(todo, moreFailed(n))
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

// moreFailed is the message about the failed folders after the first.
func moreFailed(n int) string {
	if n == 1 {
		return "1 more folder failed, see the table"
	}
	return fmt.Sprintf("%d more folders failed, see the table", n)
}

// replaceFile replaces a file atomically.
func replaceFile(name string, text []byte) error {
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
