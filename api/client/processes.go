package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// List lists the processes of an app, web first.
func (c Processes) List(ctx context.Context, app string) ([]v3.Process, error) {
	ps, err := list[v3.Process](ctx, c.transport, "/v3/apps/"+escape(app)+"/processes", nil)
	slices.SortStableFunc(ps, byType)
	return ps, err
}

// All lists the processes of all apps of the client's space, web first, each with its
// instances.
func (c Processes) All(ctx context.Context) ([]v3.Process, error) {
	q, err := c.spaceQuery(ctx)
	if err != nil {
		return nil, err
	}
	q.Set("embed", "process_instances")
	ps, err := list[v3.Process](ctx, c.transport, "/v3/processes", q)
	slices.SortStableFunc(ps, byType)
	return ps, err
}

func byType(a, b v3.Process) int {
	if (a.Type == "web") != (b.Type == "web") {
		if a.Type == "web" {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Type, b.Type)
}

// Get reads one process, with its command.
func (c Processes) Get(ctx context.Context, guid string) (v3.Process, error) {
	var p v3.Process
	_, err := c.call(ctx, http.MethodGet, "/v3/processes/"+escape(guid), nil, &p)
	return p, err
}

// Stats reads the state and the resource usage of the instances of a process.
func (c Processes) Stats(ctx context.Context, process string) ([]v3.InstanceStats, error) {
	var s v3.Stats
	_, err := c.call(ctx, http.MethodGet, "/v3/processes/"+escape(process)+"/stats", nil, &s)
	return s.Resources, err
}

// AwaitStats is Stats as soon as an instance runs or has crashed, or after a second.
func (c Processes) AwaitStats(ctx context.Context, process string) ([]v3.InstanceStats, error) {
	var s v3.Stats
	_, err := c.limited(ctx, Request{
		Method: http.MethodGet, Path: "/v3/processes/" + escape(process) + "/stats",
		Header: http.Header{"Accept": {"application/json"}, "Prefer": {"wait=1"}},
	}, &s)
	return s.Resources, err
}

// Sidecars lists the sidecars of a process.
func (c Processes) Sidecars(ctx context.Context, process string) ([]v3.Sidecar, error) {
	return list[v3.Sidecar](ctx, c.transport, "/v3/processes/"+escape(process)+"/sidecars", nil)
}

// Scale changes the number of instances of a process type, and their size.
func (c Processes) Scale(ctx context.Context, app, processType string, s v3.Scale) (v3.Process, error) {
	var p v3.Process
	_, err := c.call(ctx, http.MethodPost, "/v3/apps/"+escape(app)+"/processes/"+escape(processType)+"/actions/scale", s, &p)
	return p, err
}

// RestartInstance stops one instance. The daemon starts it again.
func (c Processes) RestartInstance(ctx context.Context, app, processType string, index int) error {
	path := fmt.Sprintf("/v3/apps/%s/processes/%s/instances/%d", escape(app), escape(processType), index)
	_, err := c.call(ctx, http.MethodDelete, path, nil, nil)
	return err
}

// newest is the query for only the newest resource.
func newest() url.Values {
	return url.Values{"order_by": {"-created_at"}, "page": {"1"}, "per_page": {"1"}}
}

// Update changes a process.
func (c Processes) Update(ctx context.Context, guid string, body v3.UpdateProcess) (v3.Process, error) {
	var p v3.Process
	_, err := c.call(ctx, http.MethodPatch, "/v3/processes/"+escape(guid), body, &p)
	return p, err
}

// Crashes lists all exit records of an app, newest first.
func (c Processes) Crashes(ctx context.Context, app string) ([]v3.Crash, error) {
	all, _, err := c.NewestCrashes(ctx, app, 0)
	return all, err
}

// NewestCrashes lists the newest exit records of an app, at most count or all if count
// is 0. It also returns their total number.
func (c Processes) NewestCrashes(ctx context.Context, app string, count int) (newest []v3.Crash, total int, err error) {
	q := url.Values{"per_page": {allPages}}
	if most, _ := strconv.Atoi(allPages); count > 0 && count < most {
		q.Set("per_page", strconv.Itoa(count))
	}
	for next := "/dew/v1/apps/" + escape(app) + "/crashes?" + q.Encode(); next != ""; {
		var page v3.Crashes
		if _, err := c.call(ctx, http.MethodGet, next, nil, &page); err != nil {
			return nil, 0, err
		}
		newest = append(newest, page.Crashes...)
		total = max(page.Pagination.TotalResults, len(newest)) // an older dewd has no pages
		next = ""
		if page.Pagination.Next != nil && (count == 0 || len(newest) < count) {
			next = local(page.Pagination.Next.Href)
		}
	}
	if count > 0 {
		newest = newest[:min(count, len(newest))]
	}
	return newest, total, nil
}

// Kill sends a signal to one process of an instance.
func (c Processes) Kill(ctx context.Context, process string, k v3.Kill) error {
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/processes/"+escape(process)+"/kill", k, nil)
	return err
}
