package api

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// tasksEndpoints are the endpoints of this file.
func (s *Server) tasksEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/tasks", Needs: access.Authenticated,
			Handler: s.listTasks, Shape: rest.PageOf[v3.Task]("guids", "names", "states", "app_guids", "space_guids", "organization_guids", rest.ParamSelector),
		},
		{Pattern: "GET /v3/tasks/{guid}", Needs: access.Read, Resource: access.Task, Handler: s.getTask, Shape: rest.Returns[v3.Task](200)},
		{
			Pattern: "PATCH /v3/tasks/{guid}", Needs: access.Develop, Resource: access.Task,
			Handler: s.updateTask, Shape: rest.Returns[v3.Task](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{Pattern: "POST /v3/tasks/{guid}/actions/cancel", Needs: access.Support, Resource: access.Task, Handler: s.cancelTask, Shape: rest.Returns[v3.Task](202)},
		{Pattern: "PUT /v3/tasks/{guid}/cancel", Needs: access.Support, Resource: access.Task, Handler: s.cancelTask, Shape: rest.Returns[v3.Task](202)},
		{
			Pattern: "GET /v3/apps/{guid}/tasks", Needs: access.Read, Resource: access.App,
			Handler: s.listAppTasks, Shape: rest.PageOf[v3.Task]("guids", "names", "states", "sequence_ids", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/apps/{guid}/tasks", Needs: access.Develop, Resource: access.App,
			Handler: s.createTask, Shape: rest.Returns[v3.Task](202).Reads(rest.JSON[v3.CreateTask]()),
		},
	}
}

func (s *Server) createTask(r *http.Request) (any, error) {
	if err := s.feature(r.Context(), app.FlagTaskCreation); err != nil {
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
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
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
	return rest.Answer{Status: http.StatusAccepted, Body: s.presentTask(t, true)}, nil
}

// checkTaskBody refuses what would be taken for "not given".
func checkTaskBody(b v3.CreateTask) error {
	if b.Command == "" && b.Template == nil && !b.Attach {
		return rest.Unprocessable("No command or template provided")
	}
	return checkScale(v3.Scale{MemoryInMB: b.MemoryInMB, DiskInMB: b.DiskInMB, LogRateLimit: b.LogRateLimit})
}

func (s *Server) getTask(r *http.Request) (any, error) {
	t, err := s.c.Registry.Task(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Task", err)
	}
	return s.showTask(r, t)
}

// showTask shows a task to who asks.
func (s *Server) showTask(r *http.Request, t app.Task) (v3.Task, error) {
	open, err := s.secrets(r)
	if err != nil {
		return v3.Task{}, err
	}
	return s.presentTask(t, open(t.App)), nil
}

func (s *Server) updateTask(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	t, err := s.c.Registry.UpdateTask(r.PathValue("guid"), func(t *app.Task) error {
		t.Metadata = t.Metadata.Merge(platform.MetadataChange(body.Metadata))
		return nil
	})
	if err != nil {
		return nil, rest.Missing("Task", err)
	}
	return s.showTask(r, t)
}

func (s *Server) cancelTask(r *http.Request) (any, error) {
	var t app.Task
	err := s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
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
	shown, err := s.showTask(r, t)
	return rest.Answer{Status: http.StatusAccepted, Body: shown}, err
}

func (s *Server) listAppTasks(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.TasksOf(a.GUID)
	if err != nil {
		return nil, err
	}
	return s.pageOfTasks(r, q, all)
}

func (s *Server) listTasks(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	apps, err := s.appsSeen(r, q)
	if err != nil {
		return nil, err
	}
	all, err := ofApps(q, apps, s.c.Registry.TasksOf, s.c.Registry.Tasks)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t app.Task) bool { _, seen := apps[t.App]; return !seen })
	return s.pageOfTasks(r, q, all)
}

func (s *Server) pageOfTasks(r *http.Request, q rest.Query, all []app.Task) (any, error) {
	open, err := s.secrets(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t app.Task) bool {
		return !q.Matches("guids", t.GUID) || !q.Matches("names", t.Name) || !q.Matches("states", string(t.State)) ||
			!q.Matches("sequence_ids", strconv.Itoa(t.Sequence))
	})
	return rest.List(s.links, r, q, all, rest.View[app.Task, v3.Task]{
		Key: func(t app.Task) rest.Key {
			return rest.Key{Name: t.Name, Created: t.CreatedAt, Updated: t.UpdatedAt, GUID: t.GUID}
		},
		Present: func(t app.Task) v3.Task { return s.presentTask(t, open(t.App)) },
		Labels:  func(t app.Task) map[string]string { return t.Metadata.Labels },
	}), nil
}

// presentTask shows a task; its command only to who may read secrets.
func (s *Server) presentTask(t app.Task, open bool) v3.Task {
	self := s.links.Href("v3", "tasks", t.GUID)
	out := v3.Task{
		GUID: t.GUID, CreatedAt: v3.At(t.CreatedAt), UpdatedAt: v3.At(t.UpdatedAt), SequenceID: t.Sequence, Name: t.Name,
		User: s.taskUser(t), State: string(t.State), MemoryInMB: t.MemoryMB, DiskInMB: t.DiskMB, LogRateLimit: logLimit(t.LogRate),
		DropletGUID: t.Droplet, Relationships: v3.TaskRelationships{App: v3.To(t.App)}, Metadata: rest.PresentMetadata(t.Metadata),
		Links: v3.Links{
			"self":    {Href: self},
			"app":     {Href: s.links.Href("v3", "apps", t.App)},
			"cancel":  {Href: self + "/actions/cancel", Method: http.MethodPost},
			"droplet": {Href: s.links.Href("v3", "droplets", t.Droplet)},
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

// taskUser is who runs the task; nil where only its image knows.
func (s *Server) taskUser(t app.Task) *string {
	user := cmp.Or(t.User, app.TaskUser)
	if d, err := s.c.Shelf.Get(t.Droplet); err == nil && d.Run != nil {
		if d.Run.User == "" {
			return nil
		}
		user = d.Run.User
	}
	return &user
}
