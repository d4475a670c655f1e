package supervisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// taskApp creates an app with a droplet and a sidecar. The app is not started.
func (w *world) taskApp() string {
	w.t.Helper()
	w.registry.ListenTasks(func(guid string) {
		if w.sup != nil {
			w.sup.SyncTask(guid)
		}
	})
	a, err := w.registry.PutApp(app.App{Name: "shop", Space: "dev", Env: map[string]string{"COLOUR": "red"}})
	w.must(err)
	_, err = w.registry.PutSidecar(app.Sidecar{App: a.GUID, Name: "agent", Command: "x", ProcessTypes: []string{app.Web}, Origin: app.OriginUser})
	w.must(err)
	w.must(w.droplets.Put(droplet.Droplet{GUID: "d1", App: a.GUID, Stack: "host", Commands: map[string]string{"web": "serve"}}))
	return a.GUID
}

// runTask creates a task and waits until all goroutines are blocked.
func (w *world) runTask(appGUID, command string) app.Task {
	w.t.Helper()
	t, err := w.registry.CreateTask(app.Task{App: appGUID, Name: "migrate it", Command: command, Droplet: "d1", MemoryMB: 64, DiskMB: 1})
	w.must(err)
	synctest.Wait()
	return t
}

func (w *world) cancelTask(guid string) {
	w.t.Helper()
	_, err := w.registry.UpdateTask(guid, func(t *app.Task) error { t.State = app.TaskCanceling; return nil })
	w.must(err)
	synctest.Wait()
}

func (w *world) wantTask(guid string, state app.TaskState, failure string) {
	w.t.Helper()
	synctest.Wait()
	t, err := w.registry.Task(guid)
	w.must(err)
	if t.State != state || t.Failure != failure {
		w.t.Errorf("task is %s %q, want %s %q", t.State, t.Failure, state, failure)
	}
}

// A task has the settings of an instance of its app, except sidecars, an index and a
// port. The app does not have to run.
func TestTaskSpec(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		a := w.taskApp()
		task := w.runTask(a, "sleep")
		w.wantTask(task.GUID, app.TaskRunning, "")
		w.wantStarts(1)
		spec := w.fake.Last().Spec()
		if spec.Kind != runtime.KindTask || spec.Task != task.GUID || spec.App != a || spec.Droplet != "d1" || spec.Memory != 64<<20 || spec.Disk != 1<<20 || len(spec.Ports) != 0 || len(spec.Processes) != 1 {
			t.Errorf("spec = %+v", spec)
		}
		p := spec.Processes[0]
		if p.Source != "APP/TASK/migrate it" || p.Command != "sleep" || p.Memory != 64<<20 || p.Dir != "/home/vcap/app" {
			t.Errorf("process = %+v", p)
		}
		env := map[string]string{}
		for _, kv := range p.Env {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
		for name, want := range map[string]string{
			"COLOUR": "red", "HOME": "/home/vcap/app", "USER": "vcap", "MEMORY_LIMIT": "64m", "VCAP_SERVICES": "{}",
			"CF_INSTANCE_PORT": "", "CF_INSTANCE_ADDR": "", "CF_INSTANCE_PORTS": "[]",
			"CF_INSTANCE_GUID": string(spec.Instance), "CF_INSTANCE_IP": spec.Address.Addr().String(),
		} {
			if got, ok := env[name]; !ok || got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
		for _, name := range []string{"PORT", "VCAP_APP_PORT", "CF_INSTANCE_INDEX", "INSTANCE_INDEX"} {
			if got, ok := env[name]; ok {
				t.Errorf("%s = %q, want none", name, got)
			}
		}
		var vcap struct {
			Name   string `json:"application_name"`
			Limits struct{ Mem, Disk int }
		}
		if err := json.Unmarshal([]byte(env["VCAP_APPLICATION"]), &vcap); err != nil || vcap.Name != "shop" || vcap.Limits.Mem != 64 || vcap.Limits.Disk != 1 {
			t.Errorf("VCAP_APPLICATION = %s, %v", env["VCAP_APPLICATION"], err)
		}
		if got := w.sup.Instances(task.GUID); len(got) != 0 {
			t.Errorf("the task is shown as an instance: %+v", got)
		}
	})
}

// The result of a task is stored and logged, and nothing is left behind.
func TestTaskEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(w *world, guid string)
		state   app.TaskState
		failure string
	}{
		"well":  {func(w *world, _ string) { w.fake.Last().End("main", 0) }, app.TaskSucceeded, ""},
		"badly": {func(w *world, _ string) { w.fake.Last().End("main", 3) }, app.TaskFailed, "APP/TASK/migrate it: Exited with status 3"},
		"out of memory": {
			func(w *world, _ string) { w.fake.Last().OOM("main") },
			app.TaskFailed, "APP/TASK/migrate it: Exited with status 137 (out of memory)",
		},
		"lost": {
			func(w *world, _ string) { w.fake.Last().LoseShim() },
			app.TaskFailed, "APP/TASK/migrate it: Container lost: its shim is gone, and the exit status with it",
		},
		"with its container": {
			func(w *world, _ string) { w.fake.Last().EndInit() },
			app.TaskFailed, "APP/TASK/migrate it: Container ended: its first process exited",
		},
		"unseen": {
			func(w *world, _ string) {
				w.fake.Last().CloseExits()
				w.pass(3 * time.Second) // the wait for its last lines times out
			},
			app.TaskFailed, "APP/TASK/migrate it: Container lost: its shim is gone, and the exit status with it",
		},
		"canceled": {func(w *world, guid string) { w.cancelTask(guid) }, app.TaskFailed, "task was cancelled"},
		"canceled and deaf": {func(w *world, guid string) {
			w.fake.Last().IgnoreSignals("main", syscall.SIGTERM)
			w.cancelTask(guid)
			w.wantTask(guid, app.TaskCanceling, "")
			w.pass(11 * time.Second)
		}, app.TaskFailed, "task was cancelled"},
		"full disk": {func(w *world, _ string) {
			w.fake.Last().SetCrashState(runtime.CrashState{Disk: runtime.Disk{Limit: 1 << 20, Used: 1 << 20}})
			w.fake.Last().End("main", 1)
		}, app.TaskFailed, "APP/TASK/migrate it: Exited with status 1 (disk quota exceeded)"},
		"too large": {func(w *world, _ string) {
			w.fake.Last().SetConsumption(runtime.Consumption{Disk: 2 << 20})
			w.pass(6 * time.Second)
		}, app.TaskFailed, "APP/TASK/migrate it: disk quota exceeded: the limit is 1M"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.daemon()
				task := w.runTask(w.taskApp(), "sleep")
				w.fake.Last().Print("main", "the last word")
				c.end(w, task.GUID)
				w.wantTask(task.GUID, c.state, c.failure)
				w.wantNothing()
				w.wantStarts(1)
				if got := w.logs.matching("the last word"); name != "unseen" && len(got) != 1 || len(got) == 1 && !strings.HasPrefix(got[0], "[APP/TASK/migrate it/0] OUT") {
					t.Errorf("last lines = %q", got)
				}
				w.pass(time.Hour)
				w.wantStarts(1) // a task runs once
			})
		})
	}
}

// The last line has the exit status, after the whole output of the task.
func TestTaskLogsStatus(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		w.runTask(w.taskApp(), "echo hello; exit 4")
		if got, want := w.logs.batchOf("hello"), "hello Exit status 4"; len(got) != 2 || string(got[0].Text)+" "+string(got[1].Text) != want {
			t.Errorf("last batch = %q, want %s", got, want)
		}
	})
}

// A task that can never start has failed. A task that cannot start now is tried again
// until it is canceled.
func TestTaskStart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		a := w.taskApp()
		w.fake.FailStart(&runtime.StartError{Reason: "no such image"})
		w.wantTask(w.runTask(a, "x").GUID, app.TaskFailed, "APP/TASK/migrate it: cannot start: no such image")
		gone, err := w.registry.CreateTask(app.Task{App: a, Name: "n", Command: "x", Droplet: "gone"})
		w.must(err)
		w.wantTask(gone.GUID, app.TaskFailed, "APP/TASK/n: cannot start: droplet gone does not exist: push the app again")
		w.fake.FailStart(runtime.ErrUnavailable)
		task := w.runTask(a, "sleep")
		canceled := w.runTask(a, "sleep")
		w.wantTask(task.GUID, app.TaskPending, "")
		w.cancelTask(canceled.GUID)
		w.wantTask(canceled.GUID, app.TaskFailed, "task was cancelled")
		w.fake.FailStart(nil)
		w.pass(time.Minute)
		w.wantTask(task.GUID, app.TaskRunning, "")
		if got := w.logs.matching("cannot start task migrate it yet"); len(got) != 2 {
			t.Errorf("said %d times that it cannot start: %q, want once per task", len(got), got)
		}
		w.wantLeases(1)
	})
}

// A task that is canceled while its container is created leaves nothing behind.
func TestTaskCanceledAtStart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		release := w.fake.BlockStart()
		defer release()
		task := w.runTask(w.taskApp(), "sleep")
		w.wantTask(task.GUID, app.TaskPending, "")
		w.cancelTask(task.GUID)
		w.wantTask(task.GUID, app.TaskFailed, "task was cancelled")
		w.wantNothing()
	})
}

// A task keeps running without its daemon, and the next daemon finds its result.
func TestTaskOutlivesDaemon(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(w *world, task app.Task)
		state     app.TaskState
		failure   string
	}{
		"it runs":    {func(*world, app.Task) {}, app.TaskRunning, ""},
		"it ended":   {func(w *world, _ app.Task) { w.fake.Last().End("main", 0) }, app.TaskSucceeded, ""},
		"it failed":  {func(w *world, _ app.Task) { w.fake.Last().End("main", 9) }, app.TaskFailed, "APP/TASK/migrate it: Exited with status 9"},
		"cancelling": {func(w *world, task app.Task) { w.sup = nil; w.cancelTask(task.GUID) }, app.TaskFailed, "task was cancelled"},
		"it is gone": {func(w *world, _ app.Task) {
			w.must(w.fake.NextDaemon().Sweep(context.Background(), nil))
		}, app.TaskFailed, "the container was lost and the exit status is unknown: the machine or containerd was restarted"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.daemon()
				task := w.runTask(w.taskApp(), "sleep")
				w.stopDaemon()
				c.meanwhile(w, task)
				w.daemon()
				w.wantTask(task.GUID, c.state, c.failure)
				w.wantStarts(1)
				if c.state == app.TaskRunning {
					w.fake.Last().End("main", 0)
					w.wantTask(task.GUID, app.TaskSucceeded, "")
				}
				w.wantNothing()
				if n := len(w.logs.matching("Exit status")); n > 1 {
					t.Errorf("its end was told %d times", n)
				}
			})
		})
	}
}

// If a daemon was killed before it stored its progress, the next one does only the
// missing steps. It removes the container of a finished task, and starts a task that
// never ran.
func TestTaskBrokenOff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		a := w.taskApp()
		ended := w.runTask(a, "sleep")
		w.stopDaemon()
		_, err := w.registry.UpdateTask(ended.GUID, func(t *app.Task) error { t.State = app.TaskSucceeded; return nil })
		w.must(err)
		w.sup = nil
		pending := w.runTask(a, "sleep")
		canceled := w.runTask(a, "sleep")
		w.cancelTask(canceled.GUID)
		w.daemon()
		w.wantTask(ended.GUID, app.TaskSucceeded, "")
		w.wantTask(pending.GUID, app.TaskRunning, "")
		w.wantTask(canceled.GUID, app.TaskFailed, "task was cancelled")
		w.wantStarts(2)
		if got := w.fake.Present(); len(got) != 1 || got[0].Spec().Task != pending.GUID {
			t.Errorf("%d containers are left, want that of the pending task", len(got))
		}
	})
}

// A task is deleted with its app, even while no daemon runs.
func TestTaskGoesWithApp(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%t", away), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.daemon()
				a := w.taskApp()
				w.runTask(a, "sleep")
				if !w.sup.Apps()[a] {
					t.Error("the app of a running task is not among those whose logs are kept")
				}
				if away {
					w.stopDaemon()
				}
				w.must(w.registry.DeleteApp(a))
				synctest.Wait()
				if away {
					w.daemon()
				}
				w.wantNothing()
				if w.sup.Apps()[a] {
					t.Error("the app still counts as running")
				}
			})
		})
	}
}

// A shutdown also stops tasks, and their records say why.
func TestTaskShutdown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		a := w.taskApp()
		task := w.runTask(a, "sleep")
		w.must(w.sup.Shutdown(context.Background()))
		w.wantTask(task.GUID, app.TaskFailed, "dewd was shut down together with the apps")
		w.wantNothing()
		late := w.runTask(a, "sleep")
		w.wantTask(late.GUID, app.TaskPending, "")
		w.wantStarts(1)
	})
}

// The order is: last lines, result, container. Nothing is removed before it is logged
// and stored.
func TestTaskOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		w.daemon()
		task := w.runTask(w.taskApp(), "sleep")
		release := w.fake.Last().HoldReap("main")
		w.fake.Last().End("main", 0)
		w.wantTask(task.GUID, app.TaskRunning, "")
		if slices.Contains(w.fake.Calls(), "delete") {
			t.Error("the container was removed before its last lines were read")
		}
		release()
		w.wantTask(task.GUID, app.TaskSucceeded, "")
		w.wantNothing()
	})
}

// Instances and tasks have the variables of all running apps; the app's own override
// them.
func TestRunningVariables(t *testing.T) {
	inWorld(t, func(w *world) {
		everywhere, group := "everywhere", "group"
		_, err := w.registry.UpdateEnvGroup(app.RunningGroup, map[string]*string{"PROXY": &everywhere, "COLOUR": &group})
		w.must(err)
		w.daemon()
		w.runTask(w.taskApp(), "sleep")
		for _, want := range []string{"PROXY=everywhere", "COLOUR=red"} {
			if env := w.fake.Last().Spec().Processes[0].Env; !slices.Contains(env, want) {
				t.Errorf("the task has no %s: %q", want, env)
			}
		}
		a, err := w.registry.PutApp(app.App{Name: "other", Space: "dev"})
		w.must(err)
		w.change(a.GUID, func(p *app.Process) { p.Command = "sleep" })
		w.state(a.GUID, app.Started)
		if env := w.fake.Last().Spec().Processes[0].Env; !slices.Contains(env, "PROXY=everywhere") || !slices.Contains(env, "COLOUR=group") {
			t.Errorf("the instance has not the group's variables: %q", env)
		}
	})
}
