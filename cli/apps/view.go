package apps

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// View is the status of an app, as dew app shows it.
type View struct {
	GUID       string        `json:"guid"`
	Name       string        `json:"name"`
	State      string        `json:"state"`
	Routes     []string      `json:"routes"`
	URLs       []string      `json:"urls"`
	Droplet    string        `json:"droplet,omitempty"`
	Stack      string        `json:"stack,omitempty"`
	Buildpacks []string      `json:"buildpacks"`
	Detected   []string      `json:"detected_buildpacks,omitempty"` // if the app names none
	Processes  []processView `json:"processes"`

	Deployment *v3.Deployment `json:"deployment,omitempty"` // the active one

	Services  []string  `json:"services"`                      // names of bound service instances
	Waiting   []string  `json:"bound_since_staging,omitempty"` // bound after staging: their credentials need a restage
	Crashes   int       `json:"crashes"`
	LastCrash *v3.Crash `json:"last_crash,omitempty"`
}

type processView struct {
	GUID        string         `json:"guid"`
	Type        string         `json:"type"`
	Generation  string         `json:"generation,omitempty"` // old or new, during a deployment
	Command     string         `json:"command,omitempty"`
	Detected    bool           `json:"command_detected,omitempty"` // it comes from the buildpack or the Procfile
	MemoryMB    int            `json:"memory_in_mb"`
	DiskMB      int            `json:"disk_in_mb"`
	MemorySum   string         `json:"memory_sum"` // 256M = web 160M + config server 64M + agent 32M
	HealthCheck string         `json:"health_check"`
	Sidecars    []sidecarView  `json:"sidecars"`
	Instances   []instanceView `json:"instances"`
}

type sidecarView struct {
	Name     string `json:"name"`
	Command  string `json:"command"`
	MemoryMB *int   `json:"memory_in_mb"`
	State    string `json:"state"`
}

type instanceView struct {
	Index     int       `json:"index"`
	State     string    `json:"state"`
	Seconds   int64     `json:"seconds"` // in this state
	CPU       float64   `json:"cpu"`     // in cores
	Memory    int64     `json:"memory"`
	MemoryMax int64     `json:"memory_quota"`
	Disk      int64     `json:"disk"`
	DiskMax   int64     `json:"disk_quota"`
	Details   string    `json:"details,omitempty"`
	Crashes   int       `json:"crash_count,omitempty"`
	NextStart time.Time `json:"next_start,omitzero"`
	GivenUp   bool      `json:"given_up,omitempty"`
	Pending   bool      `json:"pending,omitempty"` // changes apply at its next start
}

// viewParts are the answers that a view is made from.
type viewParts struct {
	routes    []v3.Route
	status    v3.Status
	droplet   v3.Droplet
	bound     []v3.AppBinding
	processes []processParts

	crashes []v3.Crash
	moving  v3.Deployment
	active  bool // whether moving is a deployment that is not over
}

// processParts are the answers about a process.
type processParts struct {
	listed, full v3.Process // lists leave the command out
	sidecars     []v3.Sidecar
	stats        []v3.InstanceStats
}

// visible returns err, unless the caller cannot see the answer: a daemon serves some
// answers only on its socket, or only to some users.
func visible(err error) error {
	if command.HiddenFromCaller(err) {
		return nil
	}
	return err
}

// readFixed requests what does not depend on the instances. It sends all requests at once.
func (p *viewParts) readFixed(ctx context.Context, api *client.Client, guid string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { p.routes, err = api.Routes().OfApp(ctx, guid); return err })
	g.Go(func() (err error) { p.status, err = api.Daemon().Status(ctx); return visible(err) })
	g.Go(func() (err error) {
		if p.droplet, err = api.Bits().Droplet(ctx, guid); client.NotFound(err) {
			return nil
		}
		return err
	})
	g.Go(func() (err error) { p.bound, err = api.Services().AppBindings(ctx, guid); return visible(err) })
	g.Go(func() error {
		all, err := api.Processes().List(ctx, guid)
		if err != nil {
			return err
		}
		p.processes = make([]processParts, len(all))
		for i, listed := range all {
			one := &p.processes[i]
			one.listed = listed
			g.Go(func() (err error) { one.full, err = api.Processes().Get(ctx, listed.GUID); return err })
			g.Go(func() (err error) { one.sidecars, err = api.Processes().Sidecars(ctx, listed.GUID); return err })
		}
		return nil
	})
	return g.Wait()
}

// readState requests the state of the instances, after readFixed.
func (p *viewParts) readState(ctx context.Context, api *client.Client, guid string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { p.crashes, err = api.Processes().Crashes(ctx, guid); return visible(err) })
	g.Go(func() (err error) { p.moving, p.active, err = api.Apps().ActiveDeployment(ctx, guid); return err })
	for i := range p.processes {
		one := &p.processes[i]
		g.Go(func() (err error) { one.stats, err = api.Processes().Stats(ctx, one.listed.GUID); return err })
	}
	return g.Wait()
}

// ReadView requests everything that a view shows.
func ReadView(ctx context.Context, api *client.Client, a v3.App) (View, error) {
	var p viewParts
	if err := p.readFixed(ctx, api, a.GUID); err != nil {
		return View{}, err
	}
	if err := p.readState(ctx, api, a.GUID); err != nil {
		return View{}, err
	}
	return p.view(a), nil
}

func (p *viewParts) view(a v3.App) View {
	v := View{
		GUID: a.GUID, Name: a.Name, State: a.State, Stack: a.Lifecycle.Data.Stack,
		Routes: []string{}, URLs: []string{}, Buildpacks: append([]string{}, a.Lifecycle.Data.Buildpacks...),
		Processes: make([]processView, len(p.processes)),
	}
	for _, r := range p.routes {
		v.Routes = append(v.Routes, r.URL)
		v.URLs = append(v.URLs, command.RouteURL(r.URL, p.status.Router))
	}
	if v.Droplet = p.droplet.GUID; p.droplet.Stack != "" {
		v.Stack = p.droplet.Stack
	}
	if len(v.Buildpacks) == 0 {
		v.Detected = console.Names(p.droplet.Buildpacks, func(b v3.DropletBuildpack) string { return b.Name })
	}
	v.Services = console.Names(p.bound, func(b v3.AppBinding) string { return b.Name })
	for _, b := range p.bound {
		if b.SinceStaging {
			v.Waiting = append(v.Waiting, b.Name)
		}
	}
	if v.Crashes = len(p.crashes); v.Crashes > 0 {
		v.LastCrash = &p.crashes[0]
	}
	if p.active {
		v.Deployment = &p.moving
	}
	for i, one := range p.processes {
		v.Processes[i] = one.view()
		shown := &v.Processes[i]
		shown.Generation = generation(v.Deployment, shown.GUID, shown.Type)
		if shown.Command == "" && shown.Generation != generationOld {
			shown.Command = p.droplet.ProcessTypes[shown.Type]
			shown.Detected = shown.Command != ""
		}
	}
	return v
}

// The generations of a process during a deployment.
const (
	generationOld = "old"
	generationNew = "new"
)

// generation is whether a deployment starts the process or replaces it. It is empty for
// other processes.
func generation(d *v3.Deployment, guid, processType string) string {
	if d == nil {
		return ""
	}
	for _, n := range d.NewProcesses {
		switch {
		case n.GUID == guid:
			return generationNew
		case n.Type == processType:
			return generationOld
		}
	}
	return ""
}

func (p processParts) view() processView {
	v := processView{
		GUID: p.listed.GUID, Type: p.listed.Type, MemoryMB: p.listed.MemoryInMB, DiskMB: p.listed.DiskInMB, HealthCheck: p.listed.HealthCheck.Type,
		Sidecars: []sidecarView{}, Instances: []instanceView{},
	}
	if p.full.Command != nil {
		v.Command = *p.full.Command
	}
	for _, s := range p.stats {
		v.Instances = append(v.Instances, viewInstance(s, p.listed.Version))
	}
	for _, s := range p.sidecars {
		v.Sidecars = append(v.Sidecars, sidecarView{Name: s.Name, Command: s.Command, MemoryMB: s.MemoryInMB, State: v.state()})
	}
	v.MemorySum = memorySum(p.listed.Type, p.listed.MemoryInMB, p.sidecars)
	return v
}

func viewInstance(s v3.InstanceStats, version string) instanceView {
	v := instanceView{
		Index: s.Index, State: s.State, Seconds: s.Uptime, CPU: s.Usage.CPU,
		Memory: s.Usage.Mem, MemoryMax: s.MemQuota, Disk: s.Usage.Disk, DiskMax: s.DiskQuota,
		Crashes: s.CrashCount, NextStart: s.NextStart, GivenUp: s.GivenUp,
		Pending: s.Version != "" && version != "" && s.Version != version && s.State == v3.StateRunning,
	}
	if s.Details != nil {
		v.Details = *s.Details
	}
	return v
}

// state is the state of a process and its sidecars, which start and stop together.
func (v processView) state() string {
	running := 0
	for _, i := range v.Instances {
		if i.State == v3.StateRunning {
			running++
		}
	}
	switch {
	case len(v.Instances) == 0:
		return "not running"
	case len(v.Instances) == 1:
		return strings.ToLower(v.Instances[0].State)
	default:
		return fmt.Sprintf("%d/%d running", running, len(v.Instances))
	}
}

// memorySum shows how the memory limit is divided between a process and its sidecars.
func memorySum(process string, total int, sidecars []v3.Sidecar) string {
	rest := total
	var shares, sharers []string
	for _, s := range sidecars {
		if s.MemoryInMB == nil || *s.MemoryInMB == 0 {
			sharers = append(sharers, s.Name)
			continue
		}
		rest -= *s.MemoryInMB
		shares = append(shares, s.Name+" "+console.Mebibytes(*s.MemoryInMB))
	}
	out := console.Mebibytes(total)
	if len(shares) > 0 {
		out += " = " + process + " " + console.Mebibytes(rest) + " + " + strings.Join(shares, " + ")
	}
	limits := "has no memory limit of its own"
	if len(sharers) > 1 {
		limits = "have no memory limits of their own"
	}
	if len(sharers) > 0 {
		out += " (" + strings.Join(sharers, ", ") + " " + limits + ")"
	}
	return out
}

// Print writes the view as text.
func (v View) Print(out *console.Console) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out.Out, "%-13s%s\n", name+":", value)
		}
	}
	row("name", out.Paint(console.Bold, v.Name))
	row("state", strings.ToLower(v.State))
	row("routes", strings.Join(v.URLs, ", "))
	row("stack", v.Stack)
	row("buildpacks", strings.Join(v.Buildpacks, ", "))
	if len(v.Detected) > 0 {
		row("buildpacks", strings.Join(v.Detected, ", ")+" (detected)")
	}
	row("services", strings.Join(v.Services, ", "))
	if len(v.Waiting) > 0 {
		row("pending", "bound since staging: "+strings.Join(v.Waiting, ", ")+". To pass the credentials to the app: dew restage "+v.Name)
	}
	row("deployment", deploymentNote(v))
	if c := v.LastCrash; c != nil {
		row("last crash", fmt.Sprintf("%s  %s (%s recorded, see dew why %s)", c.CrashedAt.Local().Format(time.DateTime), cmp.Or(c.Verdict.Sentence, c.Description), console.CrashCount(v.Crashes), v.Name))
	}
	for _, p := range v.Processes {
		p.print(out)
	}
	for _, p := range v.Processes {
		for _, i := range p.Instances {
			if i.Pending {
				row("pending", "changes apply at the next start. To restart now: dew restart "+v.Name)
				return
			}
		}
	}
}

func (v processView) print(out *console.Console) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out.Out, "%-13s%s\n", name+":", value)
		}
	}
	fmt.Fprintln(out.Out)
	row("process", v.title(out))
	row("memory", v.MemorySum)
	if v.Detected {
		row("command", v.Command+" (detected)")
	} else {
		row("command", v.Command)
	}
	for _, s := range v.Sidecars {
		row("sidecar", fmt.Sprintf("%s, %s: %s", s.Name, s.State, s.Command))
	}
	if len(v.Instances) == 0 {
		row("instances", "none")
		return
	}
	rows := [][]string{{"", "state", "duration", "cpu", "memory", "disk", "details"}}
	for _, i := range v.Instances {
		rows = append(rows, []string{
			"#" + strconv.Itoa(i.Index), strings.ToLower(i.State), (time.Duration(i.Seconds) * time.Second).String(),
			strconv.FormatFloat(100*i.CPU, 'f', 1, 64) + "%", console.Bytes(i.Memory) + " of " + console.Bytes(i.MemoryMax),
			console.Bytes(i.Disk) + " of " + console.Bytes(i.DiskMax), i.note(time.Now()),
		})
	}
	_ = out.Table(rows) // writing to a closed terminal is not an error
}

// title is the process type, with its generation during a deployment.
func (v processView) title(out *console.Console) string {
	text := out.Paint(console.Bold, v.Type)
	switch v.Generation {
	case generationOld:
		text += " (old: the deployment replaces it)"
	case generationNew:
		text += " (new: the deployment starts it)"
	}
	return text
}

// note is the last column of an instance's row.
func (i instanceView) note(now time.Time) string {
	var notes []string
	if i.Details != "" {
		notes = append(notes, i.Details)
	}
	if i.DiskMax > 0 && i.Disk > i.DiskMax {
		notes = append(notes, "over its disk limit")
	}
	if i.Crashes > 0 {
		notes = append(notes, console.CrashCount(i.Crashes)+" in a row")
	}
	switch {
	case i.GivenUp:
		notes = append(notes, givenUpText)
	case !i.NextStart.IsZero() && i.State != v3.StateRunning:
		notes = append(notes, console.NextStart(i.NextStart, now))
	}
	if i.Pending {
		notes = append(notes, "changes pending")
	}
	return strings.Join(notes, "; ")
}
