package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// Processes lists the processes of an app, web first.
func (c *Client) Processes(ctx context.Context, app string) ([]v3.Process, error) {
	ps, err := list[v3.Process](ctx, c, "/v3/apps/"+escape(app)+"/processes", nil)
	slices.SortStableFunc(ps, byType)
	return ps, err
}

// AllProcesses lists the processes of all apps of the client's space, web first,
// each with its instances.
func (c *Client) AllProcesses(ctx context.Context) ([]v3.Process, error) {
	q, err := c.here(ctx)
	if err != nil {
		return nil, err
	}
	q.Set("embed", "process_instances")
	ps, err := list[v3.Process](ctx, c, "/v3/processes", q)
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

// Process reads one process, with its command.
func (c *Client) Process(ctx context.Context, guid string) (v3.Process, error) {
	var p v3.Process
	_, err := c.call(ctx, http.MethodGet, "/v3/processes/"+escape(guid), nil, &p)
	return p, err
}

// Stats reads how the instances of a process do.
func (c *Client) Stats(ctx context.Context, process string) ([]v3.InstanceStats, error) {
	var s v3.Stats
	_, err := c.call(ctx, http.MethodGet, "/v3/processes/"+escape(process)+"/stats", nil, &s)
	return s.Resources, err
}

// Sidecars lists the sidecars of a process.
func (c *Client) Sidecars(ctx context.Context, process string) ([]v3.Sidecar, error) {
	return list[v3.Sidecar](ctx, c, "/v3/processes/"+escape(process)+"/sidecars", nil)
}

// Scale changes how many instances a process type has, and how large they are.
func (c *Client) Scale(ctx context.Context, app, processType string, s v3.Scale) (v3.Process, error) {
	var p v3.Process
	_, err := c.call(ctx, http.MethodPost, "/v3/apps/"+escape(app)+"/processes/"+escape(processType)+"/actions/scale", s, &p)
	return p, err
}

// RestartInstance ends one instance; the daemon starts it again.
func (c *Client) RestartInstance(ctx context.Context, app, processType string, index int) error {
	path := fmt.Sprintf("/v3/apps/%s/processes/%s/instances/%d", escape(app), escape(processType), index)
	_, err := c.call(ctx, http.MethodDelete, path, nil, nil)
	return err
}

// newest is the query for one thing, the newest.
func newest() url.Values {
	return url.Values{"order_by": {"-created_at"}, "page": {"1"}, "per_page": {"1"}}
}
