package registry

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
)

func newTaskRegistry(t *testing.T) (*Registry, app.App) {
	t.Helper()
	r := newRegistry(t)
	return r, one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "dev"}))
}

func TestCreateTask(t *testing.T) {
	r, a := newTaskRegistry(t)
	var heard []string
	r.ListenTasks(func(guid string) { heard = append(heard, guid) })
	first := one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Command: "x", Droplet: "d", Sequence: 77, State: app.TaskFailed, Failure: "x"}))
	second := one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Name: "n", Command: "x", Droplet: "d", MemoryMB: 5, DiskMB: 6}))
	if first.Sequence != 1 || second.Sequence != 2 || first.State != app.TaskPending || first.Failure != "" || len(first.Name) != 8 ||
		first.MemoryMB != app.DefaultMemoryMB || second.MemoryMB != 5 || second.DiskMB != 6 || second.Source() != "APP/TASK/n" {
		t.Errorf("tasks = %+v, %+v", first, second)
	}
	if len(heard) != 2 || heard[0] != first.GUID {
		t.Errorf("heard of %v", heard)
	}
	if _, err := r.CreateTask(app.Task{App: "nonesuch", Command: "x", Droplet: "d"}); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("a task of no app = %v", err)
	}
	rate := int64(-5)
	_, err := r.CreateTask(app.Task{
		App: a.GUID, Name: "a\x00", Command: " ", User: "root", MemoryMB: -1, DiskMB: app.MaxMB + 1, LogRate: &rate,
		Metadata: app.Metadata{Labels: map[string]string{"a b": ""}},
	})
	var keys []string
	for _, p := range app.Problems(err) {
		keys = append(keys, p.Key)
	}
	want := "name command memory_in_mb disk_in_mb log_rate_limit_in_bytes_per_second user droplet_guid metadata.labels[a b]"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("problems with %s, want %s", got, want)
	}
}

// The state of a task never goes back, and only its state, its failure and its metadata
// can change.
func TestTaskMoves(t *testing.T) {
	r, a := newTaskRegistry(t)
	states := []app.TaskState{app.TaskPending, app.TaskRunning, app.TaskCanceling, app.TaskSucceeded, app.TaskFailed}
	ways := map[app.TaskState][]app.TaskState{
		app.TaskPending: {}, app.TaskRunning: {app.TaskRunning}, app.TaskCanceling: {app.TaskCanceling}, app.TaskSucceeded: {app.TaskRunning, app.TaskSucceeded}, app.TaskFailed: {app.TaskFailed},
	}
	allowed := map[app.TaskState]string{
		app.TaskPending: "RUNNING CANCELING FAILED", app.TaskRunning: "CANCELING SUCCEEDED FAILED", app.TaskCanceling: "SUCCEEDED FAILED", app.TaskSucceeded: "", app.TaskFailed: "",
	}
	for from, way := range ways {
		for _, to := range states {
			task := one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Command: "x", Droplet: "d"}))
			move := func(to app.TaskState) error {
				_, err := r.UpdateTask(task.GUID, func(t *app.Task) error { t.State, t.Command, t.Sequence = to, "other", 9; return nil })
				return err
			}
			for _, s := range way {
				if err := move(s); err != nil {
					t.Fatal(err)
				}
			}
			if ok := move(to) == nil; ok != (from == to || strings.Contains(allowed[from], string(to))) {
				t.Errorf("from %s to %s = %t", from, to, ok)
			}
			if got := one[app.Task](t)(r.Task(task.GUID)); got.Command != "x" || got.Sequence != task.Sequence {
				t.Errorf("an update changed %+v", got)
			}
		}
	}
	if _, err := r.UpdateTask("nonesuch", func(*app.Task) error { return nil }); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("an update of no task = %v", err)
	}
}

func TestActiveTasks(t *testing.T) {
	r, a := newTaskRegistry(t)
	one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Command: "x", Droplet: "d"}))
	ended := one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Command: "x", Droplet: "d"}))
	one[app.Task](t)(r.UpdateTask(ended.GUID, func(t *app.Task) error { t.State = app.TaskFailed; return nil }))
	if got := one[[]app.Task](t)(r.ActiveTasks()); len(got) != 1 || got[0].Sequence != 1 {
		t.Errorf("active = %+v", got)
	}
	if err := r.DeleteApp(a.GUID); err != nil {
		t.Fatal(err)
	}
	if got := one[[]app.Task](t)(r.Tasks()); len(got) != 0 {
		t.Errorf("%d tasks are left of a deleted app", len(got))
	}
}

// Finished tasks are deleted after a month, or if there are very many. Numbers are not
// used twice. Unfinished tasks stay.
func TestPruneTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := newTaskRegistry(t)
		make1 := func() app.Task {
			return one[app.Task](t)(r.CreateTask(app.Task{App: a.GUID, Command: "x", Droplet: "d"}))
		}
		end := func(guid string) {
			one[app.Task](t)(r.UpdateTask(guid, func(t *app.Task) error { t.State = app.TaskFailed; return nil }))
		}
		living, old := make1(), make1()
		end(old.GUID)
		time.Sleep(taskAge + time.Hour)
		if got := make1(); got.Sequence != 3 {
			t.Errorf("number = %d, want 3", got.Sequence)
		}
		if _, err := r.Task(old.GUID); !errors.Is(err, app.ErrNotFound) {
			t.Errorf("an old task = %v, want it gone", err)
		}
		if _, err := r.Task(living.GUID); err != nil {
			t.Errorf("an old task that has not ended = %v", err)
		}
		err := r.update(func(r *Registry) error {
			for i := range tasksPerApp + 2 {
				guid := fmt.Sprintf("many-%d", i)
				err := r.tasks.Put(guid, app.Task{GUID: guid, App: a.GUID, Sequence: 10 + i, State: app.TaskFailed, UpdatedAt: time.Now()})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := make1().Sequence, 10+tasksPerApp+2; got != want {
			t.Errorf("number = %d, want %d", got, want)
		}
		left := one[[]app.Task](t)(r.TasksOf(a.GUID))
		if len(left) != tasksPerApp+3 || left[2].GUID != "many-2" { // and three unfinished ones
			t.Errorf("%d tasks are left, from %s on", len(left), left[2].GUID)
		}
	})
}
