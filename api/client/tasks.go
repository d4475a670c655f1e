package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// NoTask is the error for a task that does not exist.
type NoTask struct{ ID int }

func (n *NoTask) Error() string { return fmt.Sprintf("task %d does not exist", n.ID) }

// RunTask runs a command with the droplet of an app.
func (c Processes) RunTask(ctx context.Context, app string, body v3.CreateTask) (v3.Task, error) {
	var t v3.Task
	_, err := c.call(ctx, http.MethodPost, "/v3/apps/"+escape(app)+"/tasks", body, &t)
	return t, err
}

// Tasks lists the tasks of an app, newest first.
func (c Processes) Tasks(ctx context.Context, app string) ([]v3.Task, error) {
	return list[v3.Task](ctx, c.transport, "/v3/apps/"+escape(app)+"/tasks", url.Values{"order_by": {"-created_at"}})
}

// TaskByID finds the task of an app that has the number, or fails with *NoTask.
func (c Processes) TaskByID(ctx context.Context, app string, id int) (v3.Task, error) {
	found, err := list[v3.Task](ctx, c.transport, "/v3/apps/"+escape(app)+"/tasks", url.Values{"sequence_ids": {strconv.Itoa(id)}})
	if err != nil {
		return v3.Task{}, err
	}
	if len(found) == 0 {
		return v3.Task{}, &NoTask{ID: id}
	}
	return found[0], nil
}

// Task reads one task.
func (c Processes) Task(ctx context.Context, guid string) (v3.Task, error) {
	var t v3.Task
	_, err := c.call(ctx, http.MethodGet, "/v3/tasks/"+escape(guid), nil, &t)
	return t, err
}

// CancelTask cancels a task.
func (c Processes) CancelTask(ctx context.Context, guid string) (v3.Task, error) {
	var t v3.Task
	_, err := c.call(ctx, http.MethodPost, "/v3/tasks/"+escape(guid)+"/actions/cancel", nil, &t)
	return t, err
}
