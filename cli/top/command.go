package top

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

const (
	minInterval = 200 * time.Millisecond
	maxInterval = time.Minute
)

// options are the flags of the command.
type options struct {
	scope    scope
	interval time.Duration
	sort     int // index in sortKeys
	once     bool
}

// Commands has dew top.
func Commands(g *command.Set) []*cli.Command {
	return []*cli.Command{g.CommandWithEnv(command.Verb{
		Name: "top", Args: "[APP]...", Category: "Apps", Usage: "Show all instances and processes live: state, CPU, memory, logs, requests",
		About: "Shows the apps of all spaces that you can see, or only the named ones, and reads their state every second. Press ? for the keys: they sort, filter, show logs, " +
			"explain crashes and restart apps. With --once, or if stdin or stdout is not a terminal, dew top prints one table and exits.\n\n" +
			"Examples:\n   dew top\n   dew top shop cart --sort memory\n   dew top --space dev --once\n   dew top --json",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "org", Aliases: []string{"o"}, DefaultText: "all orgs", Usage: "Show only apps of the `org` with this name"},
			&cli.StringFlag{Name: "space", Aliases: []string{"s"}, DefaultText: "all spaces", Usage: "Show only apps of spaces with this `name`"},
			&cli.StringFlag{Name: "sort", Value: sortKeys[0].name, Usage: "Sort by this `column`: " + strings.Join(SortNames(), ", ")},
			&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "Read the state again after this `duration`, from 200ms to 1m"},
			command.BoolFlag("once", "Print one table and exit"),
			command.JSONFlag(),
		},
	}, func(c *cli.Context, env command.Env) error {
		o, err := readOptions(c)
		if err != nil {
			return err
		}
		return run(c.Context, o, env)
	})}
}

// SortNames are the values of --sort.
func SortNames() []string {
	return console.Names(sortKeys, func(k sortKey) string { return k.name })
}

func readOptions(c *cli.Context) (options, error) {
	o := options{
		scope:    scope{apps: c.Args().Slice(), org: c.String("org"), space: c.String("space")},
		interval: c.Duration("interval"), sort: sortIndex(c.String("sort")), once: c.Bool("once"),
	}
	if o.sort < 0 {
		hint := ""
		if near := command.Nearest(c.String("sort"), SortNames()); near != "" {
			hint = ": did you mean " + near + "?"
		}
		return o, console.UsageError("--sort: %q is not one of %s%s", c.String("sort"), strings.Join(SortNames(), ", "), hint)
	}
	if o.interval < minInterval || o.interval > maxInterval {
		return o, console.UsageError("--interval: %s is not between 200ms and 1m", o.interval)
	}
	return o, nil
}

// run reads the first data before it draws, so that errors are printed like those of
// other commands.
func run(ctx context.Context, o options, env command.Env) error {
	d := daemon{api: env.Client, scope: o.scope, local: env.URL == ""}
	first, err := d.read(ctx)
	if err != nil {
		return err
	}
	if err := d.check(ctx, env, first.live.Resources); err != nil {
		return err
	}
	switch out := env.Out; {
	case out.JSON:
		if first.live.Resources == nil {
			first.live.Resources = []v3.LiveApp{} // programs iterate over it
		}
		return out.Encode(first.live)
	case o.once || !canDraw(out):
		return printOnce(out, first, listing{sort: o.sort, expanded: true})
	default:
		return watch(ctx, newModel(ctx, d, o, first), out)
	}
}

// printOnce prints a table with all columns. Every row names its app and its instance, so
// that programs can select rows.
func printOnce(out *console.Console, s snapshot, l listing) error {
	if len(s.live.Resources) == 0 {
		out.Say("There are no apps. To create one: dew push")
		return nil
	}
	var chosen []column
	for _, c := range columns {
		if c.title != titleApp && c.title != titleInstance && c.title != titleBar {
			chosen = append(chosen, c)
		}
	}
	head := []string{"app", "instance", "process"}
	for _, c := range chosen {
		head = append(head, strings.ToLower(c.title))
	}
	table := [][]string{head}
	for _, r := range l.rows(s.live.Resources) {
		cells := []string{r.label, "-", "-"}
		if r.instance != nil {
			cells[1], cells[2] = clean(r.instance.Type)+"/"+strconv.Itoa(r.instance.Index), "all"
		}
		if r.part != nil {
			cells[2] = processName(r.part)
		}
		for _, c := range chosen {
			text, _ := c.cell(&r, s.live.Time)
			cells = append(cells, text)
		}
		table = append(table, cells)
	}
	return out.Table(table)
}
