package supervisor_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// attachedTask creates a task that a client attaches to.
func (w *world) attachedTask(command string) app.Task {
	w.t.Helper()
	t, err := w.registry.CreateTask(app.Task{App: w.taskApp(), Name: "run", Command: command, Droplet: "d1", MemoryMB: 64, DiskMB: 1, Attached: true})
	w.must(err)
	synctest.Wait()
	return t
}

func (w *world) attach(guid string) runtime.Session {
	w.t.Helper()
	ses, err := w.sup.Attach(w.t.Context(), guid, runtime.ExecSpec{Command: "something else"})
	w.must(err)
	return ses
}

// The command of an attached task runs in its only session, and the task ends with it.
// Nothing is left behind.
func TestAttachedTask(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		client  func(w *world, guid string)
		state   app.TaskState
		failure string
	}{
		"well": {"echo hello", func(w *world, guid string) {
			ses := w.attach(guid)
			w.waitFor(ses, 0)
			w.wantTask(guid, app.TaskRunning, "") // until its output is read
			if b, err := io.ReadAll(ses.Streams().Out); string(b) != "hello\n" || err != nil {
				w.t.Errorf("printed %q, %v", b, err)
			}
			w.must(ses.Close())
			w.must(ses.Close())
		}, app.TaskSucceeded, ""},
		"badly": {"exit 3", func(w *world, guid string) {
			ses := w.attach(guid)
			w.waitFor(ses, 3)
			w.must(ses.Close())
		}, app.TaskFailed, "APP/TASK/run: Exited with status 3"},
		"a shell": {app.ShellCommand, func(w *world, guid string) {
			ses := w.attach(guid)
			_, err := io.WriteString(ses.Streams().In, "exit 4\n")
			w.must(err)
			w.must(ses.Streams().In.Close())
			w.waitFor(ses, 4)
			w.must(ses.Close())
		}, app.TaskFailed, "APP/TASK/run: Exited with status 4"},
		"the client is gone": {"sleep", func(w *world, guid string) {
			w.must(w.attach(guid).Close())
		}, app.TaskFailed, "dew run disconnected"},
		"nobody comes": {"sleep", func(w *world, guid string) {
			w.wantTask(guid, app.TaskRunning, "")
			w.pass(time.Minute)
			if _, err := w.sup.Attach(w.t.Context(), guid, runtime.ExecSpec{}); err == nil {
				w.t.Error("attached to a task that is over")
			}
		}, app.TaskFailed, "dew run did not connect within 1m0s"},
		"canceled": {"sleep", func(w *world, guid string) {
			ses := w.attach(guid)
			w.cancelTask(guid)
			w.waitFor(ses, 143)
		}, app.TaskFailed, "task was cancelled"},
		"twice": {"exit 0", func(w *world, guid string) {
			ses := w.attach(guid)
			if _, err := w.sup.Attach(w.t.Context(), guid, runtime.ExecSpec{}); err == nil {
				w.t.Error("attached twice")
			}
			w.pass(2 * time.Minute) // the command can run for longer
			w.waitFor(ses, 0)
			w.must(ses.Close())
		}, app.TaskSucceeded, ""},
		"without its daemon": {"sleep", func(w *world, guid string) {
			w.attach(guid)
			w.stopDaemon()
			w.daemon()
		}, app.TaskFailed, "dewd was restarted, which disconnected dew run"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.daemon()
				task := w.attachedTask(c.command)
				if got := w.fake.Last().Spec().Processes[0].Command; !strings.HasPrefix(got, "exec sleep ") {
					t.Errorf("the main process is %q", got)
				}
				c.client(w, task.GUID)
				w.wantTask(task.GUID, c.state, c.failure)
				w.wantNothing()
				if got := w.logs.matching("Exit status 143"); len(got) > 0 {
					t.Errorf("the end of the waiting process was told: %q", got)
				}
			})
		})
	}
}

// A client cannot attach to a task that was not created for that.
func TestNotAttached(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		task := w.runTask(w.taskApp(), "sleep")
		if _, err := w.sup.Attach(t.Context(), task.GUID, runtime.ExecSpec{}); err == nil {
			t.Error("attached")
		}
		if _, err := w.sup.Attach(t.Context(), "nothing", runtime.ExecSpec{}); err == nil {
			t.Error("attached to nothing")
		}
		w.wantTask(task.GUID, app.TaskRunning, "")
	})
}

func (w *world) waitFor(ses runtime.Session, code int) {
	w.t.Helper()
	if end, err := ses.Wait(w.t.Context()); err != nil || end.Code != code {
		w.t.Errorf("the session ended with %+v, %v; want status %d", end, err, code)
	}
}
