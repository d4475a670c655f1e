package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// usageOptions select the usage events to list.
type usageOptions struct {
	Since          time.Time
	Apps, Services bool
	Newest         int // 0: all
}

// UsageCommands are the commands for usage events.
func UsageCommands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.Command(command.Verb{
		Name: "usage-events", Category: "Platform", Usage: "List usage events, newest first",
		About: "Usage events record when apps, tasks, builds and service instances start and stop using resources, for metering. Only administrators can list them.\n\nExamples:\n   dew usage-events --since 24h\n   dew usage-events --services --json",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "Show only events since this `time`, such as 10m, 24h or 2026-01-31T08:00:00Z"},
			command.BoolFlag("apps", "Show only events of apps, tasks and builds"), command.BoolFlag("services", "Show only events of service instances"),
			&cli.IntFlag{Name: "n", Usage: "Show only the newest `count` events", DefaultText: "all"}, command.JSONFlag(),
		},
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		o := usageOptions{Apps: c.Bool("apps"), Services: c.Bool("services"), Newest: c.Int("n")}
		if c.IsSet("since") {
			t, err := command.ReadTime(c.String("since"), time.Now())
			if err != nil {
				return console.UsageError("--since: %w", err)
			}
			o.Since = t
		}
		if c.IsSet("n") && o.Newest < 1 {
			return console.UsageError("-n must be at least 1, not %d", o.Newest)
		}
		return runUsage(c.Context, o, api, out)
	})}
}

// usageRow is a usage event of either kind.
type usageRow struct {
	GUID      string           `json:"guid"`
	CreatedAt time.Time        `json:"created_at"`
	Kind      string           `json:"kind"` // app or service
	State     string           `json:"state"`
	Name      string           `json:"name"` // of the app or the service instance
	Part      string           `json:"part"` // process type, task, or plan
	Space     string           `json:"space"`
	Memory    *v3.NumberChange `json:"memory_in_mb_per_instance,omitempty"`
	Instances *v3.NumberChange `json:"instance_count,omitempty"`
}

func runUsage(ctx context.Context, o usageOptions, api *client.Client, out *console.Console) error {
	rows := []usageRow{}
	if o.Apps || !o.Services {
		all, err := api.Daemon().AppUsage(ctx, o.Since)
		if err != nil {
			return err
		}
		for _, e := range all {
			rows = append(rows, appUsageRow(e))
		}
	}
	if o.Services || !o.Apps {
		all, err := api.Daemon().ServiceUsage(ctx, o.Since)
		if err != nil {
			return err
		}
		for _, e := range all {
			rows = append(rows, serviceUsageRow(e))
		}
	}
	// The sort is stable: events of the same second keep the order of their list.
	slices.SortStableFunc(rows, func(a, b usageRow) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if o.Newest > 0 {
		rows = rows[:min(o.Newest, len(rows))]
	}
	table := [][]string{{"time", "kind", "state", "name", "process or plan", "space", "memory"}}
	for _, r := range rows {
		table = append(table, []string{r.CreatedAt.Local().Format(time.DateTime), r.Kind, strings.ToLower(r.State), r.Name, r.Part, r.Space, r.size()})
	}
	return console.List{Rows: rows, Table: table, Empty: "No usage events are visible to you"}.Show(out)
}

func appUsageRow(e v3.AppUsageEvent) usageRow {
	return usageRow{
		GUID: e.GUID, CreatedAt: e.CreatedAt.Time, Kind: "app", State: e.State.Current, Name: console.FirstSet(e.App.Name), Space: console.FirstSet(e.Space.Name),
		Part: console.FirstSet(e.Task.Name, e.Process.Type, e.Buildpack.Name), Memory: &e.Memory, Instances: &e.Instances,
	}
}

func serviceUsageRow(e v3.ServiceUsageEvent) usageRow {
	return usageRow{
		GUID: e.GUID, CreatedAt: e.CreatedAt.Time, Kind: "service", State: e.State, Name: e.ServiceInstance.Name,
		Part: strings.TrimSpace(console.FirstSet(e.ServiceOffering.Name) + " " + console.FirstSet(e.ServicePlan.Name)), Space: console.FirstSet(e.Space.Name),
	}
}

// size is the number of instances and the memory of each.
func (r usageRow) size() string {
	if r.Memory == nil || r.Memory.Current == 0 {
		return ""
	}
	return fmt.Sprintf("%d x %s", r.Instances.Current, console.Mebibytes(r.Memory.Current))
}
