package cli

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// taskRoutes handles requests about tasks. The first GET request for a task shows it as
// complete.
func (d *fakeDaemon) taskRoutes(handle func(pattern string, fn func(r *http.Request, body []byte) any)) {
	handle("POST /v3/apps/{guid}/tasks", func(_ *http.Request, body []byte) any {
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
		if d.changeTask != nil {
			return d.changeTask(t)
		}
		t.State = v3.TaskSucceeded
		if why, failed := strings.CutPrefix(t.Command, "fail "); failed {
			t.State, t.Result.FailureReason = v3.TaskFailed, &why
		}
		return t
	})
	handle("GET /v3/apps/{guid}/ssh_enabled", func(*http.Request, []byte) any {
		return v3.SSHEnabled{Enabled: d.sshDisabled == "", Reason: d.sshDisabled}
	})
	handle("POST /dew/v1/ssh-code", func(*http.Request, []byte) any { return v3.SSHCode{Code: "c", Address: "127.0.0.1:1"} })
	handle("POST /v3/tasks/task-1/actions/cancel", func(*http.Request, []byte) any { return answer{202, d.tasks[0]} })
}

func TestRunTask(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("tasks", "shop").must(t, 0, "App shop has no tasks. Run one with dew run-task or dew run")
	if r := d.dew("tasks", "shop", "--json"); r.out != "[]\n" {
		t.Errorf("out = %q, want a list without tasks", r.out)
	}
	d.dew("run-task", "shop", "--command", "rake", "--name", "migrate", "-m", "64M", "-k", "1G", "-l", "16K").must(t, 0, "Created task migrate of app shop with id 1")
	want := `{"name":"migrate","command":"rake","memory_in_mb":64,"disk_in_mb":1024,"log_rate_limit_in_bytes_per_second":16384}`
	if got := d.body("POST /v3/apps/app-1/tasks"); got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.dew("run-task", "shop", "--process", "web", "--name", "n", "-w").must(t, 0, "Task n succeeded")
	if got, want := d.body("POST /v3/apps/app-1/tasks"), `{"name":"n","template":{"process":{"guid":"app-1"}}}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.dew("run-task", "shop", "-c", "fail APP/TASK/n: Exited with status 3", "--wait").must(t, 3, "exited with status 3")
	d.dew("run-task", "shop", "-c", "fail APP/TASK/n: Exited with status 137 (out of memory)", "--wait").must(t, 137, "exited with status 137 (out of memory)", "Give it more memory with -m; it had 64M")
	d.dew("run-task", "shop", "-c", "fail task was cancelled", "--name", "n", "--wait").must(t, 1, "task n failed: task was cancelled")
	d.dew("run-task", "shop", "-c", "x", "--json").must(t, 0, `"sequence_id": 6`)
	d.dew("run-task", "shop").must(t, 2, "no command given: use --command", "no process type task")
	d.dew("run-task", "shop", "--process", "batch").must(t, 1, `no process type "batch"`)
	d.dew("run-task", "shop", "-c", "x", "-m", "many").must(t, 2, "-m:")
	d.dew("run-task", "shop", "-c", "x", "-l", "many").must(t, 2, "-l:")
	d.dew("run-task", "shpo", "-c", "x").must(t, 1, `did you mean "shop"?`)
}

func TestTasks(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	why := "APP/TASK/a: Exited with status 3"
	d.tasks = []v3.Task{{GUID: "task-1", SequenceID: 3, Name: "a", State: v3.TaskFailed, MemoryInMB: 64, DiskInMB: 128, Result: v3.TaskResult{FailureReason: &why}}}
	d.dew("tasks", "shop").must(t, 0, "id   name   state", "3    a      failed", "[hidden]")
	d.dew("tasks", "shop", "--json").must(t, 0, `"failure_reason": "`+why)
	d.dew("task", "shop", "3").must(t, 0, "state:            failed", "memory:           64M", "failure reason:   "+why)
	d.dew("task", "shop", "3", "--json").must(t, 0, `"sequence_id": 3`)
	d.dew("task", "shop", "9").must(t, 1, "task 9 does not exist")
	d.dew("task", "shop", "x").must(t, 2, "dew tasks shop lists them")
	d.dew("terminate-task", "shop", "3").must(t, 1, "cannot stop task 3 of app shop: it is not running (state: failed)")
	d.tasks[0].State = v3.TaskRunning
	d.dew("terminate-task", "shop", "3").must(t, 0, "Stopping task 3 of app shop")
	d.dew("terminate-task", "shop", "9").must(t, 1, "task 9 does not exist")
}

// With --wait, dew prints the output while the task runs, stdout and stderr separately,
// without the line that dewd adds. It exits with the status of the task.
func TestRunTaskOutput(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	shop := d.withOther("shop")
	shop.print(1, "before")
	run := func(args ...string) result {
		reads := 0
		d.changeTask = func(task v3.Task) v3.Task {
			source := "APP/TASK/" + task.Name
			switch reads++; reads {
			case 1:
				shop.printAs(source, "OUT", "one")
				shop.printAs("APP/PROC/WEB", "OUT", "another")
				shop.printAs(source, "ERR", "two")
				shop.restart()
			case 3:
				shop.printAs(source, "OUT", "Exit status 7")
				shop.printAs(source, "OUT", "three")
				shop.printAs(source, "OUT", "Exit status 3")
				why := source + ": Exited with status 3"
				task.State, task.Result.FailureReason = v3.TaskFailed, &why
			}
			return task
		}
		return d.dew(append([]string{"run-task", "shop", "-c", "x", "--name", "n", "--wait"}, args...)...)
	}
	r := run()
	r.must(t, 3, "task n exited with status 3")
	if want := "one\nExit status 7\nthree\n"; r.out != want || !strings.Contains(r.talk, "two\n") || strings.Contains(r.talk, "one") {
		t.Errorf("out %q, want %q; talk %q", r.out, want, r.talk)
	}
	r = run("--json")
	var task v3.Task
	if err := json.Unmarshal([]byte(r.out), &task); err != nil || task.State != v3.TaskFailed || !strings.Contains(r.talk, "one\ntwo\n") {
		t.Errorf("--json: %v in %q; talk %q", err, r.out, r.talk)
	}
}

// dew run reports why it cannot run, and leaves no waiting task.
func TestRunRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStopped)
	d.dew("run", "shpo").must(t, 1, `did you mean "shop"?`)
	d.dew("run").must(t, 2, "run needs APP")
	d.dew("run", "shop", "-m", "many", "--", "ls").must(t, 2, "-m:")
	d.sshDisabled = "Disabled for app"
	d.dew("run", "shop", "ls").must(t, 1, "cannot run a command for app shop: ssh is disabled: Disabled for app")
	if d.count("POST /v3/apps/app-1/tasks") != 0 {
		t.Errorf("asked %v", d.requests)
	}
	d.sshDisabled = ""
	why := "APP/TASK/n: cannot start: no such image"
	d.changeTask = func(task v3.Task) v3.Task {
		task.State, task.Result.FailureReason = v3.TaskFailed, &why
		return task
	}
	d.dew("run", "shop", "--name", "n", "-k", "1G", "--", "ls", "-l", "a b").must(t, 1, "task n failed: "+why)
	if got, want := d.body("POST /v3/apps/app-1/tasks"), `{"name":"n","command":"ls -l 'a b'","disk_in_mb":1024,"attach":true}`; got != want {
		t.Errorf("body = %s, want %s", got, want)
	}
	d.changeTask = func(task v3.Task) v3.Task {
		if slices.Contains(d.requests, "POST /v3/tasks/task-1/actions/cancel") {
			task.State = v3.TaskFailed
		}
		return task
	}
	d.dew("run", "shop").must(t, console.StatusUnreachable, "cannot reach the SSH server of dewd")
	if got, want := d.body("POST /v3/apps/app-1/tasks"), `{"attach":true}`; got != want || d.count("POST /v3/tasks/task-1/actions/cancel") != 1 {
		t.Errorf("body = %s, want %s; asked %v", got, want, d.requests)
	}
}
