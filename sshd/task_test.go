package sshd

import (
	"context"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

func (w *world) Attach(ctx context.Context, task string, spec runtime.ExecSpec) (runtime.Session, error) {
	w.mu.Lock()
	w.attached = task
	w.mu.Unlock()
	return w.containers[workerGUID].Exec(ctx, runtime.MainExec, spec)
}

// A login that names a task gets the session of the task, and nothing else.
func TestEnterTask(t *testing.T) {
	w := newWorld(t, Limits{})
	task, err := w.registry.CreateTask(app.Task{App: appGUID, Name: "run", Command: "x", Droplet: "d", Attached: true})
	if err != nil {
		t.Fatal(err)
	}
	c := w.client("cf:" + task.GUID + "/task")
	out, err := w.session(c).Output("echo hello; exit 3")
	if status(t, err) != 3 || string(out) != "hello\n" || w.attached != task.GUID {
		t.Errorf("the session of %q printed %q, %v", w.attached, out, err)
	}
	for _, at := range [][2]string{{"tcp", "localhost:8080"}, {"unix", "/tmp/x"}} {
		if _, err := c.Dial(at[0], at[1]); err == nil || !strings.Contains(err.Error(), "copying files and port forwarding are not possible") {
			t.Errorf("a forward to %s = %v, want to be refused", at[1], err)
		}
	}
	for _, user := range []string{"cf:" + appGUID + "/task", "cf:nothing/task"} {
		if _, banner, err := w.login(user, w.code("more")); err == nil || !strings.Contains(banner, errNoProcess.Error()) {
			t.Errorf("%s: %v, %q", user, err, banner)
		}
	}
	if got := w.accessList()[0]; got.Type != "task" || got.App.GUID != appGUID || got.Err != nil {
		t.Errorf("access = %+v", got)
	}
}
