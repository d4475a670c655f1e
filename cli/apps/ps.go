package apps

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func psCommand(g *command.Set) *cli.Command {
	return g.Command(command.Verb{
		Name: "ps", Args: "[APP]", Category: "Apps", Usage: "List the processes and sidecars of apps: state, memory, crashes",
		About: "Each instance has one row for its process and one for each sidecar. The column crashes counts the crashes that this process or sidecar caused, as far as dewd still has their records.\n\n" +
			"Examples:\n   dew ps\n   dew ps shop --json",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "List stopped apps as well", DisableDefaultText: true}, command.JSONFlag()},
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		return runPS(c.Context, psOptions{Name: c.Args().First(), All: c.Bool("all")}, api, out)
	})
}

type psOptions struct {
	Name string // empty: all apps
	All  bool
}

// PSRow is the process of an instance, or one of its sidecars.
type PSRow struct {
	App        string    `json:"app"`
	Process    string    `json:"process"` // its type
	Generation string    `json:"generation,omitempty"`
	Index      int       `json:"index"`
	Sidecar    string    `json:"sidecar,omitempty"` // empty: the process of the instance
	State      string    `json:"state"`
	Seconds    int64     `json:"seconds"` // in this state
	Memory     *int64    `json:"memory"`  // null: not running
	MemoryMax  int64     `json:"memory_quota"`
	Crashes    *int      `json:"crashes"` // null: the user cannot see them
	Details    string    `json:"details,omitempty"`
	NextStart  time.Time `json:"next_start,omitzero"`
}

func runPS(ctx context.Context, o psOptions, api *client.Client, out *console.Console) error {
	apps, stopped, err := psApps(ctx, o, api)
	if err != nil {
		return err
	}
	rows := []PSRow{}
	for _, a := range apps {
		some, err := psOfApp(ctx, a, api)
		if err != nil {
			return err
		}
		rows = append(rows, some...)
	}
	if out.JSON {
		return out.Encode(rows)
	}
	if len(rows) > 0 {
		if err := out.Table(psTable(rows, time.Now())); err != nil {
			return err
		}
	}
	switch {
	case stopped == 1:
		out.Say("1 app is stopped: dew ps -a lists it")
	case stopped > 1:
		out.Say("%d apps are stopped: dew ps -a lists them", stopped)
	case len(apps) == 0:
		out.Say("There are no apps yet. To create one: dew push")
	case len(rows) == 0:
		out.Say("There are no instances. To add some: dew scale APP -i COUNT")
	}
	return nil
}

// psApps are the apps to list, and the number of stopped apps that are left out.
func psApps(ctx context.Context, o psOptions, api *client.Client) (apps []v3.App, stopped int, err error) {
	if o.Name != "" {
		a, err := command.FindApp(ctx, api, o.Name)
		return []v3.App{a}, 0, err
	}
	if apps, err = api.Apps().List(ctx); err != nil || o.All {
		return apps, 0, err
	}
	all := len(apps)
	apps = slices.DeleteFunc(apps, func(a v3.App) bool { return a.State != v3.AppStarted })
	return apps, all - len(apps), nil
}

func psOfApp(ctx context.Context, a v3.App, api *client.Client) ([]PSRow, error) {
	ps, err := api.Processes().List(ctx, a.GUID)
	if command.IsNotFound(err) {
		return nil, nil // deleted since the list was read
	}
	if err != nil {
		return nil, err
	}
	crashes, err := api.Processes().Crashes(ctx, a.GUID)
	visible := !command.HiddenFromCaller(err)
	if err != nil && visible {
		return nil, err
	}
	moving, active, err := api.Apps().ActiveDeployment(ctx, a.GUID)
	if err != nil {
		return nil, err
	}
	var rows []PSRow
	for _, p := range ps {
		row := PSRow{App: a.Name, Process: p.Type}
		if active {
			row.Generation = generation(&moving, p.GUID, p.Type)
		}
		some, err := psOfProcess(ctx, row, p.GUID, api)
		if command.IsNotFound(err) {
			continue // the deployment has finished since the list was read
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	if visible {
		for i := range rows {
			n := rows[i].caused(crashes)
			rows[i].Crashes = &n
		}
	}
	return rows, nil
}

// psOfProcess returns the rows of a process. They start as copies of base.
func psOfProcess(ctx context.Context, base PSRow, guid string, api *client.Client) ([]PSRow, error) {
	sidecars, err := api.Processes().Sidecars(ctx, guid)
	if err != nil {
		return nil, err
	}
	stats, err := api.Processes().Stats(ctx, guid)
	if err != nil {
		return nil, err
	}
	names := append([]string{""}, console.Names(sidecars, func(s v3.Sidecar) string { return s.Name })...)
	var rows []PSRow
	for _, s := range stats {
		for _, name := range names {
			row := base
			row.Index, row.Sidecar, row.State, row.Seconds, row.MemoryMax = s.Index, name, s.State, s.Uptime, s.MemQuota
			if name == "" {
				row.NextStart = s.NextStart
			}
			if name == "" && s.Details != nil {
				row.Details = *s.Details
			}
			if i := slices.IndexFunc(s.Parts, func(p v3.Part) bool { return p.Sidecar == name }); i >= 0 {
				row.Memory = &s.Parts[i].Mem
				if s.Parts[i].MemQuota > 0 {
					row.MemoryMax = s.Parts[i].MemQuota
				}
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// caused counts the crashes that the process or the sidecar caused.
func (r PSRow) caused(crashes []v3.Crash) int {
	n := 0
	for _, c := range crashes {
		if c.Type == r.Process && c.Index == r.Index && c.First.Sidecar == r.Sidecar {
			n++
		}
	}
	return n
}

func psTable(rows []PSRow, now time.Time) [][]string {
	table := [][]string{{"app", "instance", "process", "state", "duration", "memory", "crashes", "details"}}
	for _, r := range rows {
		name, memory, crashes := r.Process, "-", "-"
		if r.Sidecar != "" {
			name = r.Sidecar + " (sidecar)"
		}
		if r.Generation != "" {
			name += " (" + r.Generation + ")"
		}
		if r.Memory != nil {
			memory = console.Bytes(*r.Memory) + " of " + console.Bytes(r.MemoryMax)
		}
		if r.Crashes != nil {
			crashes = strconv.Itoa(*r.Crashes)
		}
		details := r.Details
		if !r.NextStart.IsZero() && r.State != v3.StateRunning {
			details = strings.TrimPrefix(details+"; "+console.NextStart(r.NextStart, now), "; ")
		}
		table = append(table, []string{
			r.App, r.Process + "/" + strconv.Itoa(r.Index), name, strings.ToLower(r.State),
			(time.Duration(r.Seconds) * time.Second).String(), memory, crashes, details,
		})
	}
	return table
}
