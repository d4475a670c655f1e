package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

const categoryTasks = "Tasks"

func taskCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{
			name: "run-task", alias: "rt", args: "APP", category: categoryTasks, usage: "run a command once, with the droplet of an app",
			about: "The task has a container of its own, without sidecars; the app need not run. Without a command the task is made after " +
				"the process type task, or after the one that --process names. What it prints is among the lines of dew logs.\n\n" +
				"Examples:\n   dew run-task shop --command \"rake db:migrate\" --name migrate --wait\n   dew run-task shop --process worker -m 1G",
			flags: []cli.Flag{
				&cli.StringFlag{Name: "command", Aliases: []string{"c"}, Usage: "`command` to run"},
				&cli.StringFlag{Name: "name", DefaultText: "generated", Usage: "`name` of the task"},
				&cli.StringFlag{Name: "m", Usage: "`memory` of the task, such as 256M"},
				&cli.StringFlag{Name: "k", Usage: "`disk` of the task, such as 512M"},
				&cli.StringFlag{Name: "l", Usage: "`bytes` per second that are kept of what it prints, such as 16K; -1 for all"},
				&cli.StringFlag{Name: "process", Usage: "process `type` that the task is made after"},
				&cli.BoolFlag{Name: "wait", Aliases: []string{"w"}, DisableDefaultText: true, Usage: "wait for its end; a task that failed makes dew fail"},
				jsonFlag(),
			},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runRunTask(c.Context, taskOptions{
				App: c.Args().First(), Command: c.String("command"), Name: c.String("name"), Process: c.String("process"), Wait: c.Bool("wait"),
				Memory: c.String("m"), Disk: c.String("k"), LogRate: c.String("l"),
			}, ask, out)
		}),
		g.command(verb{name: "tasks", args: "APP", category: categoryTasks, usage: "list the tasks of an app, newest first", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runTasks(c.Context, c.Args().First(), ask, out)
			}),
		g.command(verb{name: "task", args: "APP TASK_ID", category: categoryTasks, usage: "show a task", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runTask(c.Context, c.Args().Get(0), c.Args().Get(1), ask, out)
			}),
		g.command(verb{
			name: "terminate-task", args: "APP TASK_ID", category: categoryTasks, usage: "end a task that runs",
			about: "It is asked to end (SIGTERM), and killed 10 seconds later.\n\nExample:\n   dew terminate-task shop 3",
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			return runTerminateTask(c.Context, c.Args().Get(0), c.Args().Get(1), ask, out)
		}),
	}
}

type taskOptions struct {
	App, Command, Name, Process string
	Memory, Disk, LogRate       string
	Wait                        bool
}

// taskProcess is the process type that a task is made after when nobody says
// what to run.
const taskProcess = "task"

func runRunTask(ctx context.Context, o taskOptions, ask *client.Client, out *console) error {
	body, err := o.body()
	if err != nil {
		return err
	}
	a, err := findApp(ctx, ask, o.App)
	if err != nil {
		return err
	}
	if body.Template, err = o.template(ctx, ask, a); err != nil {
		return err
	}
	t, err := ask.RunTask(ctx, a.GUID, body)
	if err != nil {
		return fmt.Errorf("cannot run a task of %s: %w", a.Name, err)
	}
	out.say("Task %s of app %s has been submitted; its id is %d", t.Name, a.Name, t.SequenceID)
	if o.Wait {
		wait := out.wait("Running task %s", t.Name)
		t, err = waitTask(ctx, t, ask)
		if wait.end(); err != nil {
			return err
		}
	}
	if out.json {
		err = out.encode(t)
	}
	if !o.Wait {
		return err
	}
	if err := errors.Join(err, failedTask(a, t)); err != nil {
		return err
	}
	out.say("Task %s succeeded", t.Name)
	return nil
}

func (o taskOptions) body() (v3.CreateTask, error) {
	s, err := scaleOptions{Memory: o.Memory, Disk: o.Disk}.body()
	if err != nil {
		return v3.CreateTask{}, err
	}
	b := v3.CreateTask{Name: o.Name, Command: o.Command, MemoryInMB: s.MemoryInMB, DiskInMB: s.DiskInMB}
	if o.LogRate != "" {
		rate, err := app.ParseRate(o.LogRate)
		if err != nil {
			return b, usage("-l: %w", err)
		}
		n := v3.Int(rate)
		b.LogRateLimit = &n
	}
	return b, nil
}

// template is the process that the task is made after; nil: none.
func (o taskOptions) template(ctx context.Context, ask *client.Client, a v3.App) (*v3.TaskTemplate, error) {
	kind := o.Process
	if kind == "" && o.Command == "" {
		kind = taskProcess
	}
	if kind == "" {
		return nil, nil
	}
	ps, err := ask.Processes(ctx, a.GUID)
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		if p.Type == kind {
			return &v3.TaskTemplate{Process: v3.GUID{GUID: p.GUID}}, nil
		}
	}
	if o.Process == "" {
		return nil, usage("say what to run with --command, or which process type with --process: %s has no process type %s", a.Name, taskProcess)
	}
	return nil, fmt.Errorf("%s has no process type %q", a.Name, kind)
}

// waitTask waits until the task has ended.
func waitTask(ctx context.Context, t v3.Task, ask *client.Client) (v3.Task, error) {
	err := client.Poll(ctx, func() (bool, error) {
		var err error
		t, err = ask.Task(ctx, t.GUID)
		return t.State == v3.TaskSucceeded || t.State == v3.TaskFailed, err
	})
	return t, err
}

// failedTask is the error of a task that failed.
func failedTask(a v3.App, t v3.Task) error {
	if t.State != v3.TaskFailed {
		return nil
	}
	why := "it does not say why"
	if t.Result.FailureReason != nil {
		why = *t.Result.FailureReason
	}
	f := &failure{status: statusFailed, err: fmt.Errorf("task %s failed: %s", t.Name, why), todo: "dew logs " + a.Name + " --recent shows what it printed"}
	if strings.Contains(why, "(out of memory)") {
		f.status, f.todo = statusMemory, "give it more memory (-m); it had "+strconv.Itoa(t.MemoryInMB)+"M"
	}
	return f
}

func runTasks(ctx context.Context, name string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	ts, err := ask.Tasks(ctx, a.GUID)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(ts)
	}
	if len(ts) == 0 {
		out.say("%s has no tasks; dew run-task runs one", a.Name)
		return nil
	}
	table := [][]string{{"id", "name", "state", "start time", "command"}}
	for _, t := range ts {
		table = append(table, []string{strconv.Itoa(t.SequenceID), t.Name, t.State, t.CreatedAt.Local().Format(time.DateTime), command(t)})
	}
	return out.table(table)
}

// command is what a task runs, on one line.
func command(t v3.Task) string {
	if t.Command == "" {
		return "[hidden]"
	}
	return strings.Join(strings.Fields(t.Command), " ")
}

func runTask(ctx context.Context, name, id string, ask *client.Client, out *console) error {
	_, t, err := findTask(ctx, name, id, ask)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(t)
	}
	rows := [][]string{
		{"id:", strconv.Itoa(t.SequenceID)},
		{"name:", t.Name},
		{"state:", t.State},
		{"start time:", t.CreatedAt.Local().Format(time.DateTime)},
		{"command:", command(t)},
		{"memory:", strconv.Itoa(t.MemoryInMB) + "M"},
		{"disk:", strconv.Itoa(t.DiskInMB) + "M"},
	}
	if t.Result.FailureReason != nil {
		rows = append(rows, []string{"failure reason:", *t.Result.FailureReason})
	}
	return out.table(rows)
}

func runTerminateTask(ctx context.Context, name, id string, ask *client.Client, out *console) error {
	a, t, err := findTask(ctx, name, id, ask)
	if err != nil {
		return err
	}
	if _, err := ask.CancelTask(ctx, t.GUID); err != nil {
		return fmt.Errorf("cannot end task %d of %s: %w", t.SequenceID, a.Name, err)
	}
	out.say("Task %d of app %s is ending", t.SequenceID, a.Name)
	return nil
}

// findTask finds a task of an app by its number.
func findTask(ctx context.Context, name, id string, ask *client.Client) (v3.App, v3.Task, error) {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 {
		return v3.App{}, v3.Task{}, usage("%q is no id of a task: dew tasks %s lists them", id, name)
	}
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return a, v3.Task{}, err
	}
	t, err := ask.TaskByID(ctx, a.GUID, n)
	if none := (*client.NoTask)(nil); errors.As(err, &none) {
		err = &failure{status: statusFailed, err: err, todo: "dew tasks " + a.Name + " lists them"}
	}
	return a, t, err
}
