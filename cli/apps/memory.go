package apps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func memoryCommand(g *command.Set) *cli.Command {
	return g.Command(command.Verb{
		Name: "memory", Args: "APP", Category: "Apps", Usage: "Show the memory of an app's processes and sidecars, and how to split it",
		About: "Each instance has one row for its main process and one for each sidecar. The peak is the most memory since the start and includes cached files. The column earlier includes earlier instances. Headroom is the limit minus the highest peak.\n\n" +
			"After a minute of uptime dew suggests limits: 25 % more than the highest peak, rounded up to 16M.\n\n" +
			"Examples:\n   dew memory shop\n   dew memory shop --watch\n   dew memory shop --json",
		Flags: []cli.Flag{command.BoolFlag("watch", "Show it again every second, until you press Ctrl-C"), command.JSONFlag()},
	}, func(c *cli.Context, api *client.Client, out *console.Console) error {
		return runMemory(c.Context, c.Args().First(), c.Bool("watch"), api, out)
	})
}

// MemoryReport is the memory of an app.
type MemoryReport struct {
	App       string      `json:"app"`
	Processes []MemoryRow `json:"processes"`
	Advice    []string    `json:"advice"`
}

// MemoryRow is the memory of the main process of an instance, or of a sidecar, in bytes.
type MemoryRow struct {
	Process  string `json:"process"` // its type
	Index    int    `json:"index"`
	Sidecar  string `json:"sidecar,omitempty"` // empty: the main process
	Limit    int64  `json:"limit"`
	Shared   bool   `json:"shared"` // the limit is that of the whole instance
	Memory   int64  `json:"memory"`
	Cache    int64  `json:"cache"`
	Peak     int64  `json:"peak"`
	PeakEver int64  `json:"peak_ever"`
	Headroom int64  `json:"headroom"`
	Seconds  int64  `json:"seconds"` // since the start
}

func runMemory(ctx context.Context, name string, watch bool, api *client.Client, out *console.Console) error {
	a, err := command.FindApp(ctx, api, name)
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		report, err := readMemory(ctx, a, api)
		if err != nil {
			if watch && ctx.Err() != nil {
				return nil // Ctrl-C during a request
			}
			return err
		}
		if watch && out.OutTerminal && !out.JSON {
			fmt.Fprint(out.Out, "\x1b[H\x1b[2J") // start at the top of an empty screen
		}
		if err := showMemory(report, out); err != nil || !watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measurePatience bounds the wait for the first measurement of a running instance. dewd
// measures every second while clients ask.
const measurePatience = 5 * time.Second

// readMeasured reads the live state of an app. It waits until dewd has measured an
// instance that has just started.
func readMeasured(ctx context.Context, a v3.App, api *client.Client) (live v3.LiveApps, err error) {
	ctx, cancel := context.WithTimeout(ctx, measurePatience)
	defer cancel()
	pollErr := client.Poll(ctx, func() (bool, error) {
		live, err = api.Processes().Live(ctx, a.GUID)
		if err != nil || len(live.Resources) == 0 || live.Resources[0].State != v3.AppStarted {
			return true, err
		}
		unmeasured := func(in v3.LiveInstance) bool { return in.State == v3.StateRunning && len(in.Processes) == 0 }
		return !slices.ContainsFunc(live.Resources[0].Instances, unmeasured), nil
	})
	if errors.Is(pollErr, context.DeadlineExceeded) && len(live.Resources) > 0 {
		return live, nil
	}
	return live, pollErr
}

// readMemory reads the memory of the running instances of an app.
func readMemory(ctx context.Context, a v3.App, api *client.Client) (MemoryReport, error) {
	live, err := readMeasured(ctx, a, api)
	if err != nil {
		return MemoryReport{}, err
	}
	if len(live.Resources) == 0 {
		return MemoryReport{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot show the memory of app %s: it was deleted", a.Name), Advice: "To list the apps: dew apps"}
	}
	l := live.Resources[0]
	if l.State != v3.AppStarted {
		return MemoryReport{}, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot show the memory of app %s: it is stopped", a.Name), Advice: "Start it: dew start " + a.Name}
	}
	report := MemoryReport{App: a.Name, Processes: []MemoryRow{}, Advice: memoryAdvice(l.Instances, live.Time)}
	for _, in := range l.Instances {
		for _, p := range in.Processes {
			report.Processes = append(report.Processes, memoryRow(in, p, live.Time))
		}
		if text := throttledNote(in); text != "" {
			report.Advice = append(report.Advice, text)
		}
	}
	if len(report.Processes) == 0 {
		return report, &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("cannot show the memory of app %s: no instance is running", a.Name), Advice: "See why: dew why " + a.Name}
	}
	return report, nil
}

// throttledNote says how much CPU time an instance lacks because of a CPU limit. The
// limit holds for the whole instance, so every process has the same value.
func throttledNote(in v3.LiveInstance) string {
	if len(in.Processes) == 0 || in.Processes[0].Throttled < 0.005 {
		return ""
	}
	return fmt.Sprintf("%s/%d waited %.0f%% of the time because of the CPU limit (dewd --cpu-limit)", in.Type, in.Index, in.Processes[0].Throttled*100)
}

func memoryRow(in v3.LiveInstance, p v3.LivePart, now time.Time) MemoryRow {
	r := MemoryRow{
		Process: in.Type, Index: in.Index, Sidecar: p.Sidecar, Limit: p.MemQuota, Memory: p.Mem, Cache: p.Cache,
		Peak: p.Peak, PeakEver: max(p.Peak, p.PeakEver), Seconds: max(int64(now.Sub(in.Since)/time.Second), 0),
	}
	if r.Limit == 0 {
		r.Limit, r.Shared = in.MemQuota, true
	}
	r.Headroom = max(r.Limit-r.PeakEver, 0)
	return r
}

func showMemory(r MemoryReport, out *console.Console) error {
	if out.JSON {
		return out.Encode(r)
	}
	table := [][]string{{"process", "sidecar", "limit", "memory", "cache", "peak", "earlier", "headroom", "peak of limit"}}
	for _, row := range r.Processes {
		limit := console.Bytes(row.Limit)
		if row.Shared {
			limit += " shared"
		}
		table = append(table, []string{
			row.Process + "/" + strconv.Itoa(row.Index), cmp.Or(row.Sidecar, "-"), limit, console.Bytes(row.Memory), console.Bytes(row.Cache),
			console.Bytes(row.Peak), console.Bytes(row.PeakEver), console.Bytes(row.Headroom), memoryBar(row.PeakEver, row.Limit),
		})
	}
	if err := out.Table(table); err != nil {
		return err
	}
	if len(r.Advice) > 0 {
		fmt.Fprintln(out.Out)
	}
	for _, text := range r.Advice {
		if _, err := fmt.Fprintln(out.Out, text); err != nil {
			return err
		}
	}
	return nil
}

// memoryBar draws how much of the limit the peak needs.
func memoryBar(peak, limit int64) string {
	const width = 20
	if limit <= 0 {
		return ""
	}
	filled := int(min(max(peak, 0)*width/limit, width))
	return fmt.Sprintf("[%s%s] %d%%", strings.Repeat("#", filled), strings.Repeat(".", width-filled), peak*100/limit)
}

// Rules of the advice.
const (
	memoryStep      = 16 << 20    // suggested limits are a multiple of it
	memoryMinUptime = time.Minute // peaks of younger instances say little
)

// suggestedMemory is 25 % more than a peak, rounded up.
func suggestedMemory(peak int64) int64 {
	return (peak + peak/4 + memoryStep - 1) / memoryStep * memoryStep
}

// memoryAdvice suggests limits for the processes and sidecars whose limit is much higher
// than their peak, or hardly higher. It returns no advice for instances that started
// less than a minute ago.
func memoryAdvice(instances []v3.LiveInstance, now time.Time) []string {
	out := []string{}
	byType := map[string][]v3.LiveInstance{}
	var types []string
	for _, in := range instances {
		if len(in.Processes) == 0 || now.Sub(in.Since) < memoryMinUptime {
			continue
		}
		if byType[in.Type] == nil {
			types = append(types, in.Type)
		}
		byType[in.Type] = append(byType[in.Type], in)
	}
	for _, kind := range types {
		out = append(out, adviceFor(kind, byType[kind])...)
	}
	return out
}

// adviceFor returns the advice for the instances of one process type. Their limits are
// the same, so the highest peak counts.
func adviceFor(kind string, instances []v3.LiveInstance) []string {
	parts := slices.Clone(instances[0].Processes)
	for _, in := range instances[1:] {
		for i, p := range in.Processes {
			if i < len(parts) && parts[i].Sidecar == p.Sidecar && p.PeakEver > parts[i].PeakEver {
				parts[i] = p
			}
		}
	}
	total := instances[0].MemQuota
	shared := slices.ContainsFunc(parts, func(p v3.LivePart) bool { return p.Sidecar != "" && p.MemQuota == 0 })
	var out []string
	for _, p := range parts {
		limit, others := p.MemQuota, int64(0)
		if p.Sidecar != "" && limit == 0 || p.Sidecar == "" && shared {
			continue // several processes share the limit of the instance
		}
		limit = cmp.Or(limit, total)
		if p.Sidecar == "" {
			others = total - limit
		}
		if text := partAdvice(kind, p, limit, others); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// partAdvice returns the advice for one process. Others is the memory of the sidecars
// that is part of the manifest's memory of a main process.
func partAdvice(kind string, p v3.LivePart, limit, others int64) string {
	peak := max(p.Peak, p.PeakEver)
	if peak <= 0 || limit <= 0 {
		return ""
	}
	want := suggestedMemory(peak)
	name, where := "Process "+kind, "process "+kind
	if p.Sidecar != "" {
		name, where = "Sidecar "+p.Sidecar+" of "+kind, "sidecar "+p.Sidecar
	}
	key := fmt.Sprintf("`memory: %s`", console.Mebibytes(int((want+others)>>20)))
	switch {
	case peak > limit/10*9 && cacheExplains(p, peak, limit):
		return ""
	case peak > limit/10*9:
		return fmt.Sprintf("%s peaked at %s of %s: it is close to its limit. Set %s for %s in the manifest, or use less memory.",
			name, console.Bytes(peak), console.Bytes(limit), key, where)
	case want <= limit/4*3:
		return fmt.Sprintf("%s peaked at %s of %s. Set %s for %s in the manifest to free %s.",
			name, console.Bytes(peak), console.Bytes(limit), key, where, console.Bytes(limit-want))
	}
	return ""
}

// cacheExplains reports whether cached files fill the memory up to the peak. The kernel
// drops them before it kills a process.
func cacheExplains(p v3.LivePart, peak, limit int64) bool {
	return p.Mem+p.Cache >= peak/10*9 && p.Mem <= limit/4*3
}
