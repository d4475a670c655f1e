package apps

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// taskHandlers answers requests about tasks.
type taskHandlers struct{ *Handlers }

func (h taskHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/tasks", Needs: access.Authenticated,
			Handler: h.listTasks, Shape: rest.PageOf[v3.Task]("guids", "names", "states", "app_guids", "space_guids", "organization_guids", rest.ParamSelector),
		},
		{Pattern: "GET /v3/tasks/{guid}", Needs: access.Read, Resource: access.Task, Handler: h.getTask, Shape: rest.Returns[v3.Task](200)},
		{
			Pattern: "PATCH /v3/tasks/{guid}", Needs: access.Develop, Resource: access.Task,
			Handler: h.updateTask, Shape: rest.Returns[v3.Task](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{Pattern: "POST /v3/tasks/{guid}/actions/cancel", Needs: access.Support, Resource: access.Task, Handler: h.cancelTask, Shape: rest.Returns[v3.Task](202)},
		{Pattern: "PUT /v3/tasks/{guid}/cancel", Needs: access.Support, Resource: access.Task, Handler: h.cancelTask, Shape: rest.Returns[v3.Task](202)},
		{
			Pattern: "GET /v3/apps/{guid}/tasks", Needs: access.Read, Resource: access.App,
			Handler: h.listTasks, Shape: rest.PageOf[v3.Task]("guids", "names", "states", "sequence_ids", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/apps/{guid}/tasks", Needs: access.Develop, Resource: access.App,
			Handler: h.createTask, Shape: rest.Returns[v3.Task](202).Reads(rest.JSON[v3.CreateTask]()),
		},
	}
}

func (h taskHandlers) createTask(r *http.Request) (any, error) {
	if err := h.Present.Feature(r.Context(), app.FlagTaskCreation); err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.CreateTask](r)
	if err != nil {
		return nil, err
	}
	if err := checkTaskBody(body); err != nil {
		return nil, err
	}
	var t app.Task
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		a, err := w.Registry.App(r.PathValue("guid"))
		if err != nil {
			return rest.Missing("App", err)
		}
		if t, err = w.TaskFrom(a, body); err != nil {
			return err
		}
		if t, err = w.Registry.CreateTask(t); err != nil {
			return err
		}
		return w.RecordTask("audit.app.task.create", a, t)
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusAccepted, Body: h.presentTask(t, true)}, nil
}

// checkTaskBody refuses values that would be treated as not set.
func checkTaskBody(b v3.CreateTask) error {
	if b.Command == "" && b.Template == nil && !b.Attach {
		return rest.Unprocessable("No command or template provided")
	}
	return checkScale(v3.Scale{MemoryInMB: b.MemoryInMB, DiskInMB: b.DiskInMB, LogRateLimit: b.LogRateLimit})
}

func (h taskHandlers) getTask(r *http.Request) (any, error) {
	t, err := h.Platform.Registry.Task(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Task", err)
	}
	return h.showTask(r, t)
}

// showTask shows a task to the caller.
func (h taskHandlers) showTask(r *http.Request, t app.Task) (v3.Task, error) {
	open, err := h.Present.Secrets(r)
	if err != nil {
		return v3.Task{}, err
	}
	return h.presentTask(t, open(t.App)), nil
}

func (h taskHandlers) updateTask(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	t, err := h.Platform.Registry.UpdateTask(r.PathValue("guid"), func(t *app.Task) error {
		t.Metadata = t.Metadata.Merge(platform.MetadataChange(body.Metadata))
		return nil
	})
	if err != nil {
		return nil, rest.Missing("Task", err)
	}
	return h.showTask(r, t)
}

func (h taskHandlers) cancelTask(r *http.Request) (any, error) {
	var t app.Task
	err := h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		t, err = w.Registry.UpdateTask(r.PathValue("guid"), func(t *app.Task) error {
			if t.State.Ended() {
				return rest.Unprocessable("Task state is %s and therefore cannot be canceled", t.State)
			}
			t.State = app.TaskCanceling
			return nil
		})
		if err != nil {
			return rest.Missing("Task", err)
		}
		a, err := w.Registry.App(t.App)
		if err != nil {
			return rest.Missing("Task", err)
		}
		return w.RecordTask("audit.app.task.cancel", a, t)
	})
	if err != nil {
		return nil, err
	}
	shown, err := h.showTask(r, t)
	return rest.Answer{Status: http.StatusAccepted, Body: shown}, err
}

// listTasks lists the tasks of an app, or of all apps that the caller can see.
func (h taskHandlers) listTasks(r *http.Request) (any, error) {
	q, all, err := present.OfApps[app.Task]{
		One: h.Platform.Registry.TasksOf, All: h.Platform.Registry.Tasks, App: func(t app.Task) string { return t.App },
	}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t app.Task) bool {
		return !q.Matches("guids", t.GUID) || !q.Matches("names", t.Name) || !q.Matches("states", shownState(t)) ||
			!q.Matches("sequence_ids", strconv.Itoa(t.Sequence))
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Task, v3.Task]{
		Key: func(t app.Task) rest.Key {
			return rest.Key{Name: t.Name, Created: t.CreatedAt, Updated: t.UpdatedAt, GUID: t.GUID}
		},
		Present: func(t app.Task) v3.Task { return h.presentTask(t, open(t.App)) },
		Labels:  func(t app.Task) map[string]string { return t.Metadata.Labels },
	}), nil
}

// presentTask shows a task. It hides the command unless open is true.
func (h taskHandlers) presentTask(t app.Task, open bool) v3.Task {
	self := h.Links.Href("v3", "tasks", t.GUID)
	out := v3.Task{
		GUID: t.GUID, CreatedAt: v3.At(t.CreatedAt), UpdatedAt: v3.At(t.UpdatedAt), SequenceID: t.Sequence, Name: t.Name,
		User: h.taskUser(t), State: shownState(t), MemoryInMB: t.MemoryMB, DiskInMB: t.DiskMB, LogRateLimit: logLimit(t.LogRate),
		DropletGUID: t.Droplet, Relationships: v3.TaskRelationships{App: v3.To(t.App)}, Metadata: rest.PresentMetadata(t.Metadata),
		Links: v3.Links{
			"self":    {Href: self},
			"app":     {Href: h.Links.Href("v3", "apps", t.App)},
			"cancel":  {Href: self + "/actions/cancel", Method: http.MethodPost},
			"droplet": {Href: h.Links.Href("v3", "droplets", t.Droplet)},
		},
	}
	if open {
		out.Command = t.Command
	}
	if t.Failure != "" {
		out.Result.FailureReason = &t.Failure
	}
	return out
}

// shownState returns the state of a task for clients. A stored task is accepted for
// running, which Cloud Foundry reports as RUNNING, even before its container exists. Only
// dew run creates attached tasks, and it waits for the container.
func shownState(t app.Task) string {
	if t.State == app.TaskPending && !t.Attached {
		return string(app.TaskRunning)
	}
	return string(t.State)
}

// taskUser returns the user that runs the task, or nil if only its image defines it.
func (h taskHandlers) taskUser(t app.Task) *string {
	user := cmp.Or(t.User, app.TaskUser)
	if d, err := h.Platform.Droplets.Get(t.Droplet); err == nil && d.Run != nil {
		if d.Run.User == "" {
			return nil
		}
		user = d.Run.User
	}
	return &user
}
