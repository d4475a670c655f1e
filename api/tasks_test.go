package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/platform"
)

func (w *testServer) createTask(appGUID, body string) v3.Task {
	w.t.Helper()
	var out v3.Task
	w.want(http.StatusAccepted, "POST", "/v3/apps/"+appGUID+"/tasks", body, &out)
	return out
}

// A task that a client attaches to runs a shell if it names no command.
func TestAttachedTask(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"web": "serve"})
	for body, want := range map[string]string{`{"attach":true}`: app.ShellCommand, `{"attach":true,"command":"ls"}`: "ls", `{"command":"ls"}`: "ls"} {
		task := w.createTask(a.GUID, body)
		if kept, err := w.c.Registry.Task(task.GUID); err != nil || task.Command != want || kept.Attached != strings.Contains(body, "attach") {
			t.Errorf("%s = %+v, %v", body, kept, err)
		}
	}
}

func TestCreateTask(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	wantError(t, w.request("POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"x"}`), "CF-UnprocessableEntity",
		"Task must have a droplet. Specify droplet or assign current droplet to app.")
	d := w.giveDroplet(a.GUID, map[string]string{"web": "serve", "task": "migrate"})
	got := w.request("POST", "/v3/apps/"+a.GUID+"/tasks", `{"name":"migrate","command":"rake","memory_in_mb":64,"disk_in_mb":"128",
		"log_rate_limit_in_bytes_per_second":1024,"user":"vcap","metadata":{"labels":{"a":"b"}}}`)
	if got.Code != http.StatusAccepted {
		t.Fatalf("create = %d %s", got.Code, got.Body)
	}
	golden(t, "task", got.Body.Bytes())
	plain := w.createTask(a.GUID, `{"command":"rake"}`)
	if plain.SequenceID != 2 || len(plain.Name) != 8 || plain.MemoryInMB != app.DefaultMemoryMB || plain.DiskInMB != app.DefaultDiskMB ||
		plain.LogRateLimit != -1 || plain.DropletGUID != d || plain.State != v3.TaskRunning || *plain.User != "vcap" || plain.Result.FailureReason != nil {
		t.Errorf("a task with nothing but a command = %+v", plain)
	}
	for body, want := range map[string][2]string{
		`{}`:                               {"CF-UnprocessableEntity", "No command or template provided"},
		`{"command":""}`:                   {"CF-UnprocessableEntity", "No command or template provided"},
		`{"command":"x","memory_in_mb":0}`: {"CF-UnprocessableEntity", "memory_in_mb: must be greater than 0"},
		`{"command":"x","disk_in_mb":-1}`:  {"CF-UnprocessableEntity", "disk_in_mb: must be greater than 0"},
		`{"command":"x","log_rate_limit_in_bytes_per_second":-2}`:    {"CF-UnprocessableEntity", "log_rate_limit_in_bytes_per_second: must be greater"},
		`{"command":"x","user":"root"}`:                              {"CF-UnprocessableEntity", "user: must be 'vcap'"},
		`{"command":"x","name":"a\nb"}`:                              {"CF-UnprocessableEntity", "name: must not contain control characters"},
		`{"command":"x","droplet_guid":"nonesuch"}`:                  {"CF-ResourceNotFound", "Droplet not found"},
		`{"template":{"process":{"guid":"nonesuch"}}}`:               {"CF-ResourceNotFound", "Process not found"},
		`{"command":"x","colour":"red"}`:                             {"CF-UnprocessableEntity", "Unknown field(s): 'colour'"},
		`{"command":"x","metadata":{"labels":{"a":"not a label!"}}}`: {"CF-UnprocessableEntity", "metadata.labels[a]"},
	} {
		wantError(t, w.request("POST", "/v3/apps/"+a.GUID+"/tasks", body), want[0], want[1])
	}
	wantError(t, w.request("POST", "/v3/apps/nonesuch/tasks", `{"command":"x"}`), "CF-ResourceNotFound", "App not found")
	if n := len(must(w.c.Registry.TasksOf(a.GUID))(t)); n != 2 {
		t.Errorf("%d tasks after refusals, want 2", n)
	}
}

// Fields that a body omits come from the process that it names.
func TestTaskTemplate(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"web": "serve", "task": "migrate"})
	rate := int64(512)
	p := must(w.c.Registry.PutProcess(app.Process{App: a.GUID, Type: "batch", MemoryMB: 77, DiskMB: 88, LogRate: &rate}))(t)
	body := `"template":{"process":{"guid":"` + p.GUID + `"}}`
	wantError(t, w.request("POST", "/v3/apps/"+a.GUID+"/tasks", "{"+body+"}"), "CF-UnprocessableEntity", "Process 'batch' has no start command for the task")
	if got := w.createTask(a.GUID, `{"command":"own",`+body+"}"); got.Command != "own" || got.MemoryInMB != 77 || got.DiskInMB != 88 || got.LogRateLimit != 512 {
		t.Errorf("a command beside a template = %+v", got)
	}
	must(w.c.Registry.UpdateProcess(p.GUID, func(p *app.Process) error { p.Command = "batch.sh"; return nil }))(t)
	if got := w.createTask(a.GUID, `{"memory_in_mb":5,`+body+"}"); got.Command != "batch.sh" || got.MemoryInMB != 5 || got.DiskInMB != 88 {
		t.Errorf("memory beside a template = %+v", got)
	}
	other := w.createApp("other")
	w.giveDroplet(other.GUID, nil)
	wantError(t, w.request("POST", "/v3/apps/"+other.GUID+"/tasks", "{"+body+"}"), "CF-ResourceNotFound", "Process not found")
	// A droplet of another app cannot be used.
	wantError(t, w.request("POST", "/v3/apps/"+other.GUID+"/tasks", `{"command":"x","droplet_guid":"droplet-of-`+a.GUID+`"}`), "CF-ResourceNotFound", "Droplet not found")
}

// A task of an image runs as the user that the image names, and cannot choose another
// one.
func TestTaskOfImage(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	guid := w.giveDroplet(a.GUID, nil)
	for user, want := range map[string]string{"nginx": "nginx", "": ""} {
		if err := w.c.Shelf.Put(droplet.Droplet{GUID: guid, App: a.GUID, Stack: "host", Run: &stack.RunConfig{User: user}}); err != nil {
			t.Fatal(err)
		}
		got := w.createTask(a.GUID, `{"command":"x"}`)
		if want == "" && got.User != nil || want != "" && (got.User == nil || *got.User != want) {
			t.Errorf("user of an image with user %q = %v", user, got.User)
		}
	}
	wantError(t, w.request("POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"x","user":"vcap"}`), "CF-UnprocessableEntity", "user cannot be set for a Docker image")
}

func TestCancelTask(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, nil)
	for _, call := range [][2]string{{"PUT", "/cancel"}, {"POST", "/actions/cancel"}} {
		var got v3.Task
		task := w.createTask(a.GUID, `{"command":"x"}`)
		w.want(http.StatusAccepted, call[0], "/v3/tasks/"+task.GUID+call[1], "", &got)
		if got.State != v3.TaskCanceling || got.GUID != task.GUID {
			t.Errorf("%s %s = %+v", call[0], call[1], got)
		}
		// Repeating it is not an error.
		w.want(http.StatusAccepted, call[0], "/v3/tasks/"+task.GUID+call[1], "", nil)
		must(w.c.Registry.UpdateTask(task.GUID, func(t *app.Task) error { t.State, t.Failure = app.TaskFailed, "task was cancelled"; return nil }))(t)
		wantError(t, w.request(call[0], "/v3/tasks/"+task.GUID+call[1], ""), "CF-UnprocessableEntity", "Task state is FAILED and therefore cannot be canceled")
		w.want(http.StatusOK, "GET", "/v3/tasks/"+task.GUID, "", &got)
		if got.Result.FailureReason == nil || *got.Result.FailureReason != "task was cancelled" {
			t.Errorf("result = %+v", got.Result)
		}
	}
	wantError(t, w.request("PUT", "/v3/tasks/nonesuch/cancel", ""), "CF-ResourceNotFound", "Task not found")
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.app.task.create,audit.app.task.cancel&target_guids="+a.GUID, "", &events)
	if got := eventTypes(events.Resources); len(got) != 6 || !slices.Contains(got, "audit.app.task.cancel") {
		t.Errorf("events = %v", got)
	}
	if request, ok := events.Resources[0].Data["request"].(map[string]any); !ok || request["command"] != platform.Hidden {
		t.Errorf("data = %v, want the command hidden", events.Resources[0].Data)
	}
}

func TestListTasks(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, b := w.createApp("shop"), w.createApp("other")
	for _, one := range []v3.App{a, b} {
		w.giveDroplet(one.GUID, nil)
		w.createTask(one.GUID, `{"command":"x","name":"first"}`)
		done := w.createTask(one.GUID, `{"command":"x","name":"second","metadata":{"labels":{"n":"2"}}}`)
		for _, s := range []app.TaskState{app.TaskRunning, app.TaskSucceeded} {
			must(w.c.Registry.UpdateTask(done.GUID, func(t *app.Task) error { t.State = s; return nil }))(t)
		}
	}
	for query, want := range map[string]int{
		"/v3/tasks": 4, "/v3/tasks?names=first": 2, "/v3/tasks?states=SUCCEEDED": 2, "/v3/tasks?states=RUNNING": 2, "/v3/tasks?states=PENDING": 0, "/v3/tasks?app_guids=" + a.GUID: 2,
		"/v3/tasks?space_guids=" + w.space.GUID: 4, "/v3/tasks?space_guids=x": 0, "/v3/tasks?organization_guids=" + w.space.Org: 4,
		"/v3/tasks?label_selector=n=2": 2, "/v3/tasks?names=first&states=SUCCEEDED": 0,
		"/v3/apps/" + a.GUID + "/tasks": 2, "/v3/apps/" + a.GUID + "/tasks?sequence_ids=2": 1, "/v3/apps/" + a.GUID + "/tasks?sequence_ids=3": 0,
	} {
		var got v3.List[v3.Task]
		w.want(200, "GET", query, "", &got)
		if len(got.Resources) != want {
			t.Errorf("%s has %d, want %d", query, len(got.Resources), want)
		}
	}
	wantError(t, w.request("GET", "/v3/tasks?sequence_ids=1", ""), "CF-BadQueryParameter", "sequence_ids")
	wantError(t, w.request("GET", "/v3/apps/"+a.GUID+"/tasks?app_guids=x", ""), "CF-BadQueryParameter", "app_guids")
	w.finish(w.want(202, "DELETE", "/v3/apps/"+a.GUID, "", nil))
	var left v3.List[v3.Task]
	w.want(200, "GET", "/v3/tasks", "", &left)
	if len(left.Resources) != 2 {
		t.Errorf("%d tasks after an app was deleted, want the other's 2", len(left.Resources))
	}
}

// Commands can contain passwords: users who cannot read secrets do not see them.
func TestTaskSecrets(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	for who, want := range map[string]string{"space_developer": "x", "space_auditor": "", "space_supporter": "", "admin": "x"} {
		for _, path := range []string{"/v3/tasks", "/v3/apps/" + h.app + "/tasks"} {
			var got v3.List[v3.Task]
			decodeInto(t, h.as(h.tokens[who], "GET", path, ""), &got)
			if len(got.Resources) != 1 || got.Resources[0].Command != want {
				t.Errorf("%s as %s = %+v, want the command %q", path, who, got.Resources, want)
			}
		}
	}
	h.want(200, "PATCH", "/v3/feature_flags/task_creation", `{"enabled":false}`, nil)
	wantError(t, h.as(h.tokens["space_developer"], "POST", "/v3/apps/"+h.app+"/tasks", `{"command":"x"}`), "CF-FeatureDisabled", "Feature Disabled: task_creation")
	if got := h.as(h.tokens["admin"], "POST", "/v3/apps/"+h.app+"/tasks", `{"command":"x"}`); got.Code != 202 {
		t.Errorf("an administrator = %d %s, want 202 all the same", got.Code, got.Body)
	}
}
