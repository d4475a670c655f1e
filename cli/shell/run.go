package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func runCommand(g *command.Set) *cli.Command {
	return g.Command(command.Verb{
		Name: "run", Args: "APP [COMMAND]...", Category: categoryTasks,
		Usage: "Run a command on your terminal, in a new container with the droplet of an app",
		About: "The container has the environment variables and services of the app, but no sidecars. The app does not have to run. Without a command " +
			"dew opens a shell. In a terminal, keys such as Ctrl-C go to the command; in a pipe, stdin, stdout and stderr are passed as they are. " +
			"dew exits with the exit status of the command (128+n for signal n).\n\n" +
			"One argument is a shell command; several are a program and its arguments. Flags of dew come before the command; -- separates them.\n\n" +
			"The command is a task: dew tasks lists it, and it ends when dew exits or is killed. Its output is not stored in the logs. " +
			"dew disable-ssh disables it as well.\n\n" +
			"Examples:\n   dew run shop\n   dew run shop -m 1G -- rails console\n   dew run shop 'env | sort'\n" +
			"   dew run shop -- psql -f - < dump.sql",
		Flags: append(containerFlags(), &cli.BoolFlag{Name: "T", Aliases: []string{"disable-pseudo-tty"}, Usage: "Do not use a terminal", DisableDefaultText: true}),
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		return runRun(c.Context, runOptions{
			taskOptions: taskOptions{
				App: c.Args().First(), Command: shellCommand(c.Args().Tail()), Name: c.String("name"), Memory: c.String("m"), Disk: c.String("k"),
			},
			NoTerminal: c.Bool("T"),
		}, Connection{Client: api, Out: out})
	})
}

type runOptions struct {
	taskOptions
	NoTerminal bool
}

// shellCommand is the command line of a program and its arguments. A single argument
// is a command line already.
func shellCommand(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = shellQuote(a)
	}
	return strings.Join(quoted, " ")
}

// plainWord are the characters without a special meaning in shells.
const plainWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%"

// shellQuote is a as one word of a shell.
func shellQuote(a string) string {
	if a != "" && strings.Trim(a, plainWord) == "" {
		return a
	}
	return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
}

// runRun runs a command as a task, with the streams of this program.
func runRun(ctx context.Context, o runOptions, t Connection) (err error) {
	body, err := o.body()
	if err != nil {
		return err
	}
	a, err := command.FindApp(ctx, t.Client, o.App)
	if err != nil {
		return err
	}
	enabled, err := t.Client.Apps().SSHEnabled(ctx, a.GUID)
	if err != nil {
		return err
	}
	if !enabled.Enabled {
		return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot run a command for app %s: ssh is disabled: %s", a.Name, enabled.Reason), Advice: "To run a command without a terminal: dew run-task " + a.Name}
	}
	code, err := t.Client.Users().SSHCode(ctx)
	if err != nil {
		return err
	}
	body.Attach = true
	task, err := t.Client.Processes().RunTask(ctx, a.GUID, body)
	if err != nil {
		return fmt.Errorf("cannot run a command for app %s: %w", a.Name, err)
	}
	err = attachTask(ctx, task, o, code, t)
	return errors.Join(err, concludeRun(ctx, task, err, t.Client))
}

// attachTask waits for the container of a task and runs its command there.
func attachTask(ctx context.Context, task v3.Task, o runOptions, code v3.SSHCode, t Connection) error {
	task, err := waitTask(ctx, task, t.Client, v3.TaskRunning, v3.TaskSucceeded, v3.TaskFailed)
	if err != nil || task.State != v3.TaskRunning {
		return err // concludeRun reports why it did not start
	}
	conn, err := dialSSH(ctx, "cf:"+task.GUID+"/task", code)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it can be closed already
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := Options{Terminal: NoTerminal}
	if t.Out.OutTerminal && !o.NoTerminal { // in a pipe, the line ends of a terminal would change the output
		in.Terminal = terminalIfHere
	}
	return Interact(ctx, conn, in, t.Out)
}

// concludeLimit bounds the wait for the end of an attached task.
const concludeLimit = 15 * time.Second

// concludeRun waits until a task has finished, which happens soon after its session
// closes. It returns why the task failed if the session did not report it.
func concludeRun(ctx context.Context, task v3.Task, ended error, api *client.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeLimit)
	defer cancel()
	reported := ended != nil && ended.Error() != ""
	if reported {
		_, _ = api.Processes().CancelTask(ctx, task.GUID) // no client will attach to it; it can already be finished
	}
	task, err := waitTask(ctx, task, api, v3.TaskSucceeded, v3.TaskFailed)
	why := task.Result.FailureReason
	if err != nil || reported || ended != nil && (why == nil || exitedWith.MatchString(*why)) {
		return nil
	}
	return failedTask(task)
}
