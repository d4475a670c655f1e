package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const categoryTasks = "Tasks"

// TaskCommands run commands in new containers.
func TaskCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{
		g.Command(command.Verb{
			Name: "run-task", Alias: "rt", Args: "APP", Category: categoryTasks, Usage: "Run a command as a task, in a new container with the droplet of an app",
			About: "The container has the environment variables and services of the app, but no sidecars. The app does not have to run. Without --command " +
				"the task runs the command of the process type task, or of the process type of --process. dew logs shows its output.\n\n" +
				"With --wait dew shows the output while the task runs, and exits with the exit status of the task.\n\n" +
				"Examples:\n   dew run-task shop --command \"rake db:migrate\" --name migrate --wait\n   dew run-task shop --process worker -m 1G",
			Flags: append([]cli.Flag{
				&cli.StringFlag{Name: "command", Aliases: []string{"c"}, Usage: "Run this `command`"},
				&cli.StringFlag{Name: "l", Usage: "Log rate limit in `bytes` per second, such as 16K; -1 for no limit"},
				&cli.StringFlag{Name: "process", Usage: "Process `type` whose command, memory limit and disk limit the task uses by default"},
				&cli.BoolFlag{Name: "wait", Aliases: []string{"w"}, DisableDefaultText: true, Usage: "Show the output until the task ends, and exit with its exit status"},
				command.JSONFlag(),
			}, containerFlags()...),
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runRunTask(c.Context, taskOptions{
				App: c.Args().First(), Command: c.String("command"), Name: c.String("name"), Process: c.String("process"), Wait: c.Bool("wait"),
				Memory: c.String("m"), Disk: c.String("k"), LogRate: c.String("l"),
			}, api, out)
		}),
		runCommand(g),
		g.Command(command.Verb{Name: "tasks", Args: "APP", Category: categoryTasks, Usage: "List the tasks of an app, newest first", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runTasks(c.Context, c.Args().First(), api, out)
			}),
		g.Command(command.Verb{Name: "task", Args: "APP TASK_ID", Category: categoryTasks, Usage: "Show a task of an app", Flags: []cli.Flag{command.JSONFlag()}},
			func(c *cli.Context, api *client.Client, out *console.Console) error {
				return runTask(c.Context, c.Args().Get(0), c.Args().Get(1), api, out)
			}),
		g.Command(command.Verb{
			Name: "terminate-task", Args: "APP TASK_ID", Category: categoryTasks, Usage: "Terminate a running task of an app",
			About: "dewd sends SIGTERM, and SIGKILL 10 seconds later.\n\nExample:\n   dew terminate-task shop 3",
		}, func(c *cli.Context, api *client.Client, out *console.Console) error {
			return runTerminateTask(c.Context, c.Args().Get(0), c.Args().Get(1), api, out)
		}),
	}
}

// containerFlags are the flags of commands that run something in its own container.
func containerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", DefaultText: "generated", Usage: "Task `name`"},
		&cli.StringFlag{Name: "m", Usage: "Memory limit: a `size` such as 256M"},
		&cli.StringFlag{Name: "k", Usage: "Disk limit: a `size` such as 512M"},
	}
}

type taskOptions struct {
	App, Command, Name, Process string
	Memory, Disk, LogRate       string
	Wait                        bool
}

// taskProcess is the process type whose command a task runs by default.
const taskProcess = "task"

func runRunTask(ctx context.Context, o taskOptions, api *client.Client, out *console.Console) error {
	body, err := o.body()
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, api, o.App)
	if err != nil {
		return err
	}
	if body.Template, err = o.template(ctx, api, a); err != nil {
		return err
	}
	w := &taskOutput{out: out.Out, err: out.Err, screen: out.OutTerminal}
	if o.Wait {
		if err := w.begin(ctx, a, api); err != nil {
			return err
		}
	}
	t, err := api.Processes().RunTask(ctx, a.GUID, body)
	if err != nil {
		return fmt.Errorf("cannot run a task of app %s: %w", a.Name, err)
	}
	out.Say("Created task %s of app %s with id %d", t.Name, a.Name, t.SequenceID)
	if !o.Wait {
		if out.JSON {
			return out.Encode(t)
		}
		return nil
	}
	if out.JSON {
		w.out = out.Err
	}
	if t, err = w.stream(ctx, a, t, api); err != nil {
		return err
	}
	if out.JSON {
		err = out.Encode(t)
	}
	if err := errors.Join(err, failedTask(t)); err != nil {
		return err
	}
	out.Say("Task %s succeeded", t.Name)
	return nil
}

func (o taskOptions) body() (v3.CreateTask, error) {
	s, err := apps.ScaleOptions{Memory: o.Memory, Disk: o.Disk}.Body()
	if err != nil {
		return v3.CreateTask{}, err
	}
	b := v3.CreateTask{Name: o.Name, Command: o.Command, MemoryInMB: s.MemoryInMB, DiskInMB: s.DiskInMB}
	if o.LogRate != "" {
		rate, err := app.ParseRate(o.LogRate)
		if err != nil {
			return b, console.UsageError("-l: %w", err)
		}
		n := v3.Int(rate)
		b.LogRateLimit = &n
	}
	return b, nil
}

// template is the process whose command and limits the task uses; nil: none.
func (o taskOptions) template(ctx context.Context, api *client.Client, a v3.App) (*v3.TaskTemplate, error) {
	kind := o.Process
	if kind == "" && o.Command == "" {
		kind = taskProcess
	}
	if kind == "" {
		return nil, nil
	}
	ps, err := api.Processes().List(ctx, a.GUID)
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		if p.Type == kind {
			return &v3.TaskTemplate{Process: v3.GUID{GUID: p.GUID}}, nil
		}
	}
	if o.Process == "" {
		return nil, console.UsageError("no command given: use --command, or --process with a process type (app %s has no process type %s)", a.Name, taskProcess)
	}
	return nil, fmt.Errorf("app %s has no process type %q", a.Name, kind)
}

// awayLimit is how long dewd can be unreachable while a command waits for a task.
const awayLimit = 2 * time.Minute

// waitTask waits until the task is in one of the states, even if dewd restarts.
func waitTask(ctx context.Context, t v3.Task, api *client.Client, states ...string) (v3.Task, error) {
	answered := time.Now()
	err := client.Poll(ctx, func() (bool, error) {
		now, err := api.Processes().Task(ctx, t.GUID)
		away := (*client.Unreachable)(nil)
		switch {
		case err == nil:
			t, answered = now, time.Now()
		case errors.As(err, &away) && time.Since(answered) < awayLimit:
			err = nil
		}
		return slices.Contains(states, t.State), err
	})
	return t, err
}

// exitedWith finds the exit status in the failure reason of a task.
var exitedWith = regexp.MustCompile(`: Exited with status (\d+)( \((?:out of memory|disk quota exceeded)\))?$`)

// failedTask is the error of a task that failed. Its status is the exit status of
// the task.
func failedTask(t v3.Task) error {
	if t.State != v3.TaskFailed {
		return nil
	}
	why := "for an unknown reason"
	if t.Result.FailureReason != nil {
		why = *t.Result.FailureReason
	}
	exit := exitedWith.FindStringSubmatch(why)
	if exit == nil {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("task %s failed: %s", t.Name, why)}
	}
	f := &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("task %s exited with status %s%s", t.Name, exit[1], exit[2])}
	if n, err := strconv.Atoi(exit[1]); err == nil && n > 0 && n < 256 {
		f.Status = n
	}
	switch {
	case strings.Contains(exit[2], "memory"):
		f.Advice = fmt.Sprintf("Give it more memory with -m; it had %dM", t.MemoryInMB)
	case exit[2] != "":
		f.Advice = fmt.Sprintf("Give it more disk space with -k; it had %dM", t.DiskInMB)
	}
	return f
}

// taskOutput writes the lines of one task as it printed them.
type taskOutput struct {
	out, err io.Writer
	screen   bool
	place    client.LogPlace
	buf      []byte
	held     []byte // possibly the last line, which dewd adds
}

// begin stores the position of the last log line before the task starts.
func (w *taskOutput) begin(ctx context.Context, a v3.App, api *client.Client) error {
	return api.Logs().Stream(ctx, a.GUID, client.LogQuery{Newest: 0, Place: &w.place}, client.Lines{Line: func(*v3.Line) error { return nil }})
}

// stream writes the output of the task until it has finished.
func (w *taskOutput) stream(ctx context.Context, a v3.App, t v3.Task, api *client.Client) (v3.Task, error) {
	q := client.LogQuery{Newest: -1, Follow: true, Source: "APP/TASK/" + t.Name, Place: &w.place}
	lines := client.Lines{Line: w.line}
	following, stop := context.WithCancel(ctx)
	read := make(chan error, 1)
	go func() { read <- api.Logs().Stream(following, a.GUID, q, lines) }()
	t, err := waitTask(ctx, t, api, v3.TaskSucceeded, v3.TaskFailed)
	stop()
	<-read // the stream below returns the same error
	if err != nil {
		return t, err
	}
	q.Follow = false // all of its lines are stored before its state changes
	if err := api.Logs().Stream(ctx, a.GUID, q, lines); err != nil {
		return t, fmt.Errorf("cannot read the output of task %s: %w", t.Name, err)
	}
	return t, nil
}

// exitLine starts the line that dewd adds after the output of a task.
const exitLine = "Exit status "

// line writes a line to stdout or stderr, as the task did. It holds back the last line,
// which dewd adds.
func (w *taskOutput) line(l *v3.Line) error {
	if len(w.held) > 0 {
		if _, err := w.out.Write(w.held); err != nil {
			return err
		}
		w.held = nil
	}
	to := w.out
	if l.Stream == "ERR" || slices.Contains(l.Flags, v3.FlagGap) {
		to = w.err
	}
	b := w.buf[:0]
	if w.screen {
		b = console.AppendPrintable(b, l.Text, true)
	} else {
		b = append(b, l.Text...)
	}
	if !slices.Contains(l.Flags, v3.FlagCut) {
		b = append(b, '\n')
	}
	w.buf = b
	if l.Stream == "OUT" && bytes.HasPrefix(l.Text, []byte(exitLine)) {
		w.held = slices.Clone(b)
		return nil
	}
	_, err := to.Write(b)
	return err
}

func runTasks(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	ts, err := api.Processes().Tasks(ctx, a.GUID)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(ts)
	}
	if len(ts) == 0 {
		out.Say("App %s has no tasks. Run one with dew run-task or dew run", a.Name)
		return nil
	}
	table := [][]string{{"id", "name", "state", "start time", "command"}}
	for _, t := range ts {
		table = append(table, []string{strconv.Itoa(t.SequenceID), t.Name, strings.ToLower(t.State), t.CreatedAt.Local().Format(time.DateTime), commandText(t)})
	}
	return out.Table(table)
}

// commandText is the command of a task on one line.
func commandText(t v3.Task) string {
	if t.Command == "" {
		return "[hidden]"
	}
	return strings.Join(strings.Fields(t.Command), " ")
}

func runTask(ctx context.Context, name, id string, api *client.Client, out *console.Console) error {
	_, t, err := findTask(ctx, name, id, api)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(t)
	}
	rows := [][]string{
		{"id:", strconv.Itoa(t.SequenceID)},
		{"name:", t.Name},
		{"state:", strings.ToLower(t.State)},
		{"start time:", t.CreatedAt.Local().Format(time.DateTime)},
		{"command:", commandText(t)},
		{"memory:", strconv.Itoa(t.MemoryInMB) + "M"},
		{"disk:", strconv.Itoa(t.DiskInMB) + "M"},
	}
	if t.Result.FailureReason != nil {
		rows = append(rows, []string{"failure reason:", *t.Result.FailureReason})
	}
	return out.Table(rows)
}

func runTerminateTask(ctx context.Context, name, id string, api *client.Client, out *console.Console) error {
	a, t, err := findTask(ctx, name, id, api)
	if err != nil {
		return err
	}
	if t.State == v3.TaskSucceeded || t.State == v3.TaskFailed {
		return fmt.Errorf("cannot stop task %d of app %s: it is not running (state: %s)", t.SequenceID, a.Name, strings.ToLower(t.State))
	}
	if _, err := api.Processes().CancelTask(ctx, t.GUID); err != nil {
		return fmt.Errorf("cannot stop task %d of app %s: %w", t.SequenceID, a.Name, err)
	}
	out.Say("Stopping task %d of app %s", t.SequenceID, a.Name)
	return nil
}

// findTask finds a task of an app by its number.
func findTask(ctx context.Context, name, id string, api *client.Client) (v3.App, v3.Task, error) {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 {
		return v3.App{}, v3.Task{}, console.UsageError("%q is not the id of a task (dew tasks %s lists them)", id, name)
	}
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return a, v3.Task{}, err
	}
	t, err := api.Processes().TaskByID(ctx, a.GUID, n)
	if none := (*client.NoTask)(nil); errors.As(err, &none) {
		err = &console.Failure{Status: console.StatusFailed, Err: err, Advice: "To list the tasks: dew tasks " + a.Name}
	}
	return a, t, err
}
