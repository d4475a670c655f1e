package logs

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func runEvents(ctx context.Context, name string, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	events, err := api.Apps().Events(ctx, a.GUID, newEvents)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Encode(append([]v3.Event{}, events...))
	}
	table := [][]string{{"time", "event", "actor", "description"}}
	for _, e := range events {
		table = append(table, []string{e.CreatedAt.Local().Format(time.DateTime), e.Type, e.Actor.Name, describe(e.Data)})
	}
	return out.Table(table)
}

// described are the fields of an event to show, in this order.
var described = []string{
	"index", "reason", "cell_id", "instance", "exit_description", "exit_status", "recursive", "disk_quota", "instances", "memory", "state", "command",
}

// describe writes the data of an event on one line. For a change it shows the request.
func describe(data map[string]any) string {
	if request, ok := data["request"].(map[string]any); ok {
		data = request
	}
	var out []string
	for _, key := range described {
		if v, ok := data[key]; ok {
			out = append(out, key+": "+flat(v))
		}
	}
	if vars, ok := data["environment_json"].(map[string]any); ok {
		out = append(out, "environment_json: "+strings.Join(slices.Sorted(maps.Keys(vars)), ", "))
	}
	return strings.Join(out, ", ")
}

func flat(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return console.CompactJSON(v)
}
