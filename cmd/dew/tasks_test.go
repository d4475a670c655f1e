package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// taskRoutes answers about tasks. A task ends at the second look at it.
func (d *daemon) taskRoutes(handle func(pattern string, fn func(r *http.Request, body []byte) any)) {
	handle("POST /v3/apps/app-1/tasks", func(_ *http.Request, body []byte) any {
		var b v3.CreateTask
		if err := json.Unmarshal(body, &b); err != nil {
			return answer{422, v3.Errors{Errors: []v3.Error{{Code: 10008, Title: "CF-UnprocessableEntity", Detail: err.Error()}}}}
		}
		t := v3.Task{GUID: "task-1", SequenceID: len(d.tasks) + 1, Name: b.Name, Command: b.Command, State: v3.TaskRunning, MemoryInMB: 64, DiskInMB: 128}
		d.tasks = append(d.tasks, t)
		return answer{202, t}
	})
	handle("GET /v3/apps/app-1/tasks", func(r *http.Request, _ []byte) any {
		found := d.tasks
		if r.URL.Query().Get("sequence_ids") == "9" {
			found = nil
		}
		return v3.List[v3.Task]{Resources: found}
	})
	handle("GET /v3/tasks/task-1", func(*http.Request, []byte) any {
		t := d.tasks[len(d.tasks)-1]
		t.State = v3.TaskSucceeded
		if why, failed := strings.CutPrefix(t.Command, "fail "); failed {
			t.State, t.Result.FailureReason = v3.TaskFailed, &why
		}
		return t
	})
	handle("POST /v3/tasks/task-1/actions/cancel", func(*http.Request, []byte) any { return answer{202, d.tasks[0]} })
}

func TestRunTask(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("tasks", "shop").must(t, 0, "shop has no tasks")
	if r := d.dew("tasks", "shop", "--json"); r.out != "[]\n" {
		t.Errorf("out = %q, want a list without tasks", r.out)
	}
	d.dew("run-task", "shop", "--command", "rake", "--name", "migrate", "-m", "64M", "-k", "1G", "-l", "16K").must(t, 0, "Task migrate of app shop", "its id is 1")
	want := `{"name":"migrate","command":"rake","memory_in_mb":64,"disk_in_mb":1024,"log_rate_limit_in_bytes_per_second":16384}`
	if got := d.body("POST /v3/apps/app-1/tasks"); got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.dew("run-task", "shop", "--process", "web", "--name", "n", "-w").must(t, 0, "Task n succeeded")
	if got, want := d.body("POST /v3/apps/app-1/tasks"), `{"name":"n","template":{"process":{"guid":"app-1"}}}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.dew("run-task", "shop", "-c", "fail APP/TASK/n: Exited with status 3", "--wait").must(t, 1, "failed: APP/TASK/n: Exited with status 3", "dew logs shop --recent")
	d.dew("run-task", "shop", "-c", "fail APP/TASK/n: Exited with status 137 (out of memory)", "--wait").must(t, 7, "give it more memory (-m); it had 64M")
	d.dew("run-task", "shop", "-c", "x", "--json").must(t, 0, `"sequence_id": 5`)
	d.dew("run-task", "shop").must(t, 2, "--command", "no process type task")
	d.dew("run-task", "shop", "--process", "batch").must(t, 1, `no process type "batch"`)
	d.dew("run-task", "shop", "-c", "x", "-m", "many").must(t, 2, "-m:")
	d.dew("run-task", "shop", "-c", "x", "-l", "many").must(t, 2, "-l:")
	d.dew("run-task", "shpo", "-c", "x").must(t, 1, `did you mean "shop"?`)
}

func TestTasks(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	why := "APP/TASK/a: Exited with status 3"
	d.tasks = []v3.Task{{GUID: "task-1", SequenceID: 3, Name: "a", State: v3.TaskFailed, MemoryInMB: 64, DiskInMB: 128, Result: v3.TaskResult{FailureReason: &why}}}
	d.dew("tasks", "shop").must(t, 0, "id   name   state", "3    a      FAILED", "[hidden]")
	d.dew("tasks", "shop", "--json").must(t, 0, `"failure_reason": "`+why)
	d.dew("task", "shop", "3").must(t, 0, "state:            FAILED", "memory:           64M", "failure reason:   "+why)
	d.dew("task", "shop", "3", "--json").must(t, 0, `"sequence_id": 3`)
	d.dew("task", "shop", "9").must(t, 1, "there is no task 9")
	d.dew("task", "shop", "x").must(t, 2, "dew tasks shop lists them")
	d.dew("terminate-task", "shop", "3").must(t, 0, "Task 3 of app shop is ending")
	d.dew("terminate-task", "shop", "9").must(t, 1, "there is no task 9")
}
