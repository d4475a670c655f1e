package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

const (
	recentLines = 1000 // of --recent, as cf has it
	firstLines  = 10   // before following
	newEvents   = 50
)

func logCommands(g *global) []*cli.Command {
	return []*cli.Command{
		g.command(verb{
			name: "logs", args: "APP", category: "Logs", usage: "follow what an app and its sidecars print",
			flags: []cli.Flag{
				boolFlag("recent", "show the newest lines and end"),
				&cli.IntFlag{Name: "n", Aliases: []string{"lines"}, DefaultText: fmt.Sprintf("%d, with --recent %d", firstLines, recentLines), Usage: "`count` of old lines"},
				boolFlag("no-color", "no colours, also on a terminal"),
				boolFlag("json", "one JSON object per line"),
			},
		}, func(c *cli.Context, ask *client.Client, out *console) error {
			o := logsOptions{Name: c.Args().First(), Recent: c.Bool("recent"), Lines: firstLines}
			if o.Recent {
				o.Lines = recentLines
			}
			if c.IsSet("n") {
				o.Lines = c.Int("n")
			}
			out.color = out.color && !c.Bool("no-color")
			return runLogs(c.Context, o, ask, out)
		}),
		g.command(verb{name: "events", args: "APP", category: "Logs", usage: "list what happened to an app, newest first", flags: []cli.Flag{jsonFlag()}},
			func(c *cli.Context, ask *client.Client, out *console) error {
				return runEvents(c.Context, c.Args().First(), ask, out)
			}),
	}
}

type logsOptions struct {
	Name   string
	Recent bool
	Lines  int
}

func runLogs(ctx context.Context, o logsOptions, ask *client.Client, out *console) error {
	if o.Lines < 0 {
		return usage("-n: %d is less than 0", o.Lines)
	}
	a, err := findApp(ctx, ask, o.Name)
	if err != nil {
		return err
	}
	if o.Recent {
		lines, err := ask.Recent(ctx, a.GUID, o.Lines)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if err := printLine(out, l); err != nil {
				return err
			}
		}
		return nil
	}
	for l, err := range ask.Stream(ctx, a.GUID, o.Lines) {
		if ctx.Err() != nil {
			return nil // the usual way to end it
		}
		if err != nil {
			return err
		}
		if err := printLine(out, l); err != nil {
			return err
		}
	}
	return nil
}

// printLine writes one line. A reader that is gone ends the command.
func printLine(out *console, l v3.Line) error {
	if !out.json {
		_, err := fmt.Fprintln(out.out, formatLine(l, out.color))
		return err
	}
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("cannot write line %d: %w", l.Seq, err)
	}
	_, err = fmt.Fprintf(out.out, "%s\n", b)
	return err
}

const lineTime = "2006-01-02T15:04:05.000Z07:00"

// formatLine is a line as people read it:
// <time> [APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0] OUT text.
func formatLine(l v3.Line, color bool) string {
	source := fmt.Sprintf("[%s/%d]", l.Source, l.Index)
	stream := l.Stream
	if color {
		source = sourceColour(l.Source) + source + plain
		if stream == "ERR" {
			stream = red + stream + plain
		}
	}
	return l.Time.Local().Format(lineTime) + " " + source + " " + stream + " " + string(l.Text)
}

// sourceColour tells an app's own lines from its sidecars' and the platform's.
func sourceColour(source string) string {
	switch {
	case strings.Contains(source, "/SIDECAR/"):
		return yellow
	case strings.HasPrefix(source, "APP/"):
		return green
	default:
		return cyan
	}
}

func runEvents(ctx context.Context, name string, ask *client.Client, out *console) error {
	a, err := findApp(ctx, ask, name)
	if err != nil {
		return err
	}
	events, err := ask.Events(ctx, a.GUID, newEvents)
	if err != nil {
		return err
	}
	if out.json {
		return out.encode(append([]v3.Event{}, events...))
	}
	table := [][]string{{"time", "event", "actor", "description"}}
	for _, e := range events {
		table = append(table, []string{e.CreatedAt.Local().Format(time.DateTime), e.Type, e.Actor.Name, describe(e.Data)})
	}
	return out.table(table)
}

// described are the facts of an event that people want to see, in this order.
var described = []string{
	"index", "reason", "cell_id", "instance", "exit_description", "exit_status", "recursive", "disk_quota", "instances", "memory", "state", "command",
}

// describe writes the data of an event on one line. A change is described by what
// was asked for.
func describe(data map[string]any) string {
	if asked, ok := data["request"].(map[string]any); ok {
		data = asked
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
	return compact(v)
}
