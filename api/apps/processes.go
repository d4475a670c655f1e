package apps

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// processHandlers answers requests about processes and their instances.
type processHandlers struct{ *Handlers }

func (h processHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "POST /dew/v1/processes/{guid}/kill", Needs: access.Develop, Resource: access.Process,
			Handler: h.killProcess, Shape: rest.Empty(204).Reads(rest.JSON[v3.Kill]()),
		},
		{
			Pattern: "GET /v3/apps/{guid}/processes", Needs: access.Read, Resource: access.App,
			Handler: h.listAppProcesses, Shape: rest.PageOf[v3.Process]("guids", "types", "embed", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/processes", Needs: access.Authenticated,
			Handler: h.listProcesses, Shape: rest.PageOf[v3.Process]("guids", "types", "app_guids", "space_guids", "organization_guids", "embed", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/processes/{guid}", Needs: access.Read, Resource: access.Process,
			Handler: h.getProcess, Shape: rest.Returns[v3.Process](200).Query("embed"),
		},
		{
			Pattern: "PATCH /v3/processes/{guid}", Needs: access.Support, Resource: access.Process,
			Handler: h.updateProcess, Shape: rest.Returns[v3.Process](200).Reads(rest.JSON[v3.UpdateProcess]()),
		},
		{
			Pattern: "POST /v3/processes/{guid}/actions/scale", Needs: access.Support, Resource: access.Process,
			Handler: h.scaleProcess, Shape: rest.Returns[v3.Process](202).Reads(rest.JSON[v3.Scale]()),
		},
		{
			Pattern: "GET /v3/processes/{guid}/process_instances", Needs: access.Read, Resource: access.Process,
			Handler: h.listInstances, Shape: rest.PageOf[v3.ProcessInstance]().OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/apps/{guid}/processes/{type}/process_instances", Needs: access.Read, Resource: access.App,
			Handler: h.listInstances, Shape: rest.PageOf[v3.ProcessInstance]().OrderedBy(rest.ByTime...),
		},
		{Pattern: "DELETE /v3/processes/{guid}/instances/{index}", Needs: access.Support, Resource: access.Process, Handler: h.deleteInstance, Shape: rest.Empty(204)},
		{
			Pattern: "GET /v3/apps/{guid}/processes/{type}", Needs: access.Read, Resource: access.App,
			Handler: h.getProcess, Shape: rest.Returns[v3.Process](200).Query("embed"),
		},
		{
			Pattern: "PATCH /v3/apps/{guid}/processes/{type}", Needs: access.Support, Resource: access.App,
			Handler: h.updateProcess, Shape: rest.Returns[v3.Process](200).Reads(rest.JSON[v3.UpdateProcess]()),
		},
		{
			Pattern: "POST /v3/apps/{guid}/processes/{type}/actions/scale", Needs: access.Support, Resource: access.App,
			Handler: h.scaleProcess, Shape: rest.Returns[v3.Process](202).Reads(rest.JSON[v3.Scale]()),
		},
		{
			Pattern: "DELETE /v3/apps/{guid}/processes/{type}/instances/{index}", Needs: access.Support, Resource: access.App,
			Handler: h.deleteInstance, Shape: rest.Empty(204),
		},
	}
}

// processOf returns the process that the path names, by its GUID or by its app and
// type.
func (h *Handlers) processOf(r *http.Request) (app.Process, error) {
	return findProcess(h.Platform.Registry, r)
}

func findProcess(reg *registry.Registry, r *http.Request) (app.Process, error) {
	kind := r.PathValue("type")
	if kind == "" {
		guid, _, _ := app.SplitGeneration(r.PathValue("guid"))
		p, err := reg.Process(guid)
		return p, rest.Missing("Process", err)
	}
	a, err := reg.App(r.PathValue("guid"))
	if err != nil {
		return app.Process{}, rest.Missing("App", err)
	}
	ps, err := reg.Processes(a.GUID)
	if err != nil {
		return app.Process{}, err
	}
	for _, p := range ps {
		if p.Type == kind {
			return p, nil
		}
	}
	return app.Process{}, rest.NotFound("Process")
}

func (h processHandlers) listAppProcesses(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	ps, err := h.Platform.Registry.Processes(a.GUID)
	if err != nil {
		return nil, err
	}
	return h.pageOfProcesses(r, q, ps, map[string]app.App{a.GUID: a})
}

// listProcesses reads apps and processes once, regardless of how many there are.
func (h processHandlers) listProcesses(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	apps, err := h.Present.VisibleApps(r, q)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.AllProcesses()
	if err != nil {
		return nil, err
	}
	return h.pageOfProcesses(r, q, all, apps)
}

// embedInstances is the only resource that can be embedded in a process.
const embedInstances = "process_instances"

// readEmbed reports whether the response contains the instances of its processes.
func readEmbed(q rest.Query) (bool, error) {
	for _, name := range q.Filters["embed"] {
		if name != embedInstances {
			return false, rest.BadQuery("Invalid embedded resource: '%s'. Valid embedded resources are: '%s'", name, embedInstances)
		}
	}
	return len(q.Filters["embed"]) > 0, nil
}

// pageOfProcesses returns the page of those processes that belong to the apps.
func (h processHandlers) pageOfProcesses(r *http.Request, q rest.Query, all []app.Process, apps map[string]app.App) (any, error) {
	embed, err := readEmbed(q)
	if err != nil {
		return nil, err
	}
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	parts, err := h.partsAmong(all, apps)
	if err != nil {
		return nil, err
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return !q.Matches("guids", p.guid) || !q.Matches("types", p.process.Type) })
	return rest.List(h.Links, r, q, parts, rest.View[part, v3.Process]{
		Key: func(p part) rest.Key {
			return rest.Key{Name: p.process.Type, Created: p.process.CreatedAt, Updated: p.process.UpdatedAt, GUID: p.guid}
		},
		Labels: func(p part) map[string]string { return p.process.Metadata.Labels },
		Present: func(p part) v3.Process {
			a := apps[p.process.App]
			out := h.presentPart(p, a, open(a.GUID))
			if embed {
				out.EmbeddedInstances = h.instancesOf(a, p)
			}
			return out
		},
	}), nil
}

// partsAmong returns the parts of those processes that belong to the apps.
func (h processHandlers) partsAmong(all []app.Process, apps map[string]app.App) ([]part, error) {
	moving, err := h.Platform.Registry.ActiveDeployments()
	if err != nil {
		return nil, err
	}
	var out []part
	for _, p := range all {
		if _, seen := apps[p.App]; !seen {
			continue
		}
		parts, err := h.partsOf(p, moving[p.App])
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	return out, nil
}

// listInstances shows the state of each instance of a process.
func (h processHandlers) listInstances(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	p, err := h.partOf(r)
	if err != nil {
		return nil, err
	}
	a, err := h.Platform.Registry.App(p.process.App)
	if err != nil {
		return nil, rest.Missing("App", err)
	}
	return rest.List(h.Links, r, q, h.instancesOf(a, p), rest.View[v3.ProcessInstance, v3.ProcessInstance]{
		Key:     func(i v3.ProcessInstance) rest.Key { return rest.Key{GUID: fmt.Sprintf("%09d", i.Index)} },
		Present: func(i v3.ProcessInstance) v3.ProcessInstance { return i },
	}), nil
}

func (h processHandlers) getProcess(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	embed, err := readEmbed(q)
	if err != nil {
		return nil, err
	}
	p, err := h.partOf(r)
	if err != nil {
		return nil, err
	}
	open, oerr := h.Present.Secrets(r)
	a, err := h.Platform.Registry.App(p.process.App)
	if err := errors.Join(oerr, rest.Missing("Process", err)); err != nil {
		return nil, err
	}
	out := h.presentPart(p, a, open(a.GUID))
	if embed {
		out.EmbeddedInstances = h.instancesOf(a, p)
	}
	return out, nil
}

// showProcess shows a process to the caller.
func (h processHandlers) showProcess(r *http.Request, p app.Process) (v3.Process, error) {
	open, oerr := h.Present.Secrets(r)
	a, err := h.Platform.Registry.App(p.App)
	if err := errors.Join(oerr, rest.Missing("Process", err)); err != nil {
		return v3.Process{}, err
	}
	return h.presentProcess(p, h.detectedCommand(a, p), open(p.App)), nil
}

// detectedCommand returns the start command that the buildpack or the Procfile of the
// current droplet declares for a process, or nothing.
func (h processHandlers) detectedCommand(a app.App, p app.Process) string {
	if p.Command != "" || a.Droplet == "" {
		return ""
	}
	d, err := h.Platform.Droplets.Get(a.Droplet)
	if err != nil {
		return "" // it was deleted a moment ago
	}
	return d.Commands[p.Type]
}

func (h processHandlers) updateProcess(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateProcess](r)
	if err != nil {
		return nil, err
	}
	eventBody := body
	if eventBody.Command.Given && !eventBody.Command.Null {
		eventBody.Command.Value = platform.Hidden // commands can contain passwords
	}
	p, err := h.changeProcess(r, "update", eventBody, func(p *app.Process) error {
		if body.Command.Given {
			p.Command = body.Command.Value // null: the droplet's command
		}
		p.Metadata = p.Metadata.Merge(platform.MetadataChange(body.Metadata))
		if err := setCheck(&p.HealthCheck, body.HealthCheck, "health_check"); err != nil {
			return err
		}
		return setCheck(&p.Readiness, body.ReadinessCheck, "readiness_health_check")
	})
	if err != nil {
		return nil, err
	}
	return h.showProcess(r, p)
}

// changeProcess changes the process that the path names and records the change, an
// update or a scale.
func (h processHandlers) changeProcess(r *http.Request, what string, request any, fn func(p *app.Process) error) (p app.Process, err error) {
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		if p, err = findProcess(w.Registry, r); err != nil {
			return err
		}
		if err := platform.CheckNoDeployment(w.Registry, p, map[string]string{"update": platform.NoUpdateNow, "scale": platform.NoScaleNow}[what]); err != nil {
			return err
		}
		if p, err = w.Registry.UpdateProcess(p.GUID, fn); err != nil {
			return err
		}
		a, err := w.Registry.App(p.App)
		if err != nil {
			return err
		}
		return w.RecordProcess(what, a, p, map[string]any{"request": request})
	})
	return p, err
}

// setCheck changes the fields that the body names. A change of the type removes the
// fields that only the old type had.
func setCheck(h *app.HealthCheck, u *v3.UpdateHealthCheck, key string) error {
	if u == nil {
		return nil
	}
	if u.Type != nil && *u.Type != h.Type {
		h.Type = *u.Type
		h.Endpoint = ""
	}
	d := u.Data
	if d == nil {
		return nil
	}
	if d.Endpoint.Given {
		h.Endpoint = d.Endpoint.Value
	}
	for _, n := range []struct {
		name string
		from v3.Nullable[v3.Int]
		to   *time.Duration
	}{
		{"timeout", d.Timeout, &h.Timeout},
		{"invocation_timeout", d.InvocationTimeout, &h.InvocationTimeout},
		{"interval", d.Interval, &h.Interval},
	} {
		if !n.from.Given {
			continue
		}
		if !n.from.Null && (n.from.Value < 1 || n.from.Value > math.MaxInt32) {
			return &app.Invalid{Key: key + ".data." + n.name, Message: "must be a number of seconds greater than 0, or null"}
		}
		*n.to = time.Duration(n.from.Value) * time.Second
	}
	return nil
}

func (h processHandlers) scaleProcess(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.Scale](r)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(h.Present.Feature(r.Context(), app.FlagScaling), checkScale(body)); err != nil {
		return nil, err
	}
	p, err := h.changeProcess(r, "scale", body, func(p *app.Process) error {
		for _, n := range []struct {
			from *v3.Int
			to   *int
		}{{body.Instances, &p.Instances}, {body.MemoryInMB, &p.MemoryMB}, {body.DiskInMB, &p.DiskMB}} {
			if n.from != nil {
				*n.to = int(*n.from)
			}
		}
		if body.LogRateLimit != nil {
			p.LogRate = platform.LogRate(*body.LogRateLimit)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	shown, err := h.showProcess(r, p)
	return rest.Answer{Status: http.StatusAccepted, Body: shown}, err
}

// checkScale refuses values that the registry would treat as not set.
func checkScale(b v3.Scale) error {
	if b.MemoryInMB != nil && *b.MemoryInMB < 1 {
		return &app.Invalid{Key: "memory_in_mb", Message: "must be greater than 0"}
	}
	if b.DiskInMB != nil && *b.DiskInMB < 1 {
		return &app.Invalid{Key: "disk_in_mb", Message: "must be greater than 0"}
	}
	if b.LogRateLimit != nil && *b.LogRateLimit < platform.NoLogLimit {
		return &app.Invalid{Key: "log_rate_limit_in_bytes_per_second", Message: "must be greater than or equal to -1"}
	}
	return nil
}

// logLimit returns a log rate limit as the API shows it; platform.NoLogLimit if there
// is none.
func logLimit(rate *int64) int64 {
	if rate == nil {
		return platform.NoLogLimit
	}
	return *rate
}

func (h processHandlers) deleteInstance(r *http.Request) (any, error) {
	p, err := h.processOf(r)
	if err != nil {
		return nil, err
	}
	index, err := strconv.Atoi(r.PathValue("index"))
	if err != nil || index < 0 {
		return nil, rest.NotFound("Instance")
	}
	guid := p.GUID
	if r.PathValue("type") == "" {
		guid = r.PathValue("guid") // it can name a generation
	}
	if err := h.Platform.Processes.RestartInstance(guid, index); err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		a, err := w.Registry.App(p.App)
		if err != nil {
			return err
		}
		return w.RecordProcess("terminate_instance", a, p, map[string]any{"process_index": index})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// presentPart shows a process, or the part that a deployment adds to it.
func (h processHandlers) presentPart(p part, a app.App, open bool) v3.Process {
	shown := p.process
	shown.GUID = p.guid
	return h.presentProcess(shown, h.detectedCommand(a, shown), open)
}

// presentProcess shows a process, with the detected command if it has none of its own.
// It hides the command unless open is true.
func (h processHandlers) presentProcess(p app.Process, detected string, open bool) v3.Process {
	self := h.Links.Href("v3", "processes", p.GUID)
	out := v3.Process{
		GUID: p.GUID, CreatedAt: v3.At(p.CreatedAt), UpdatedAt: v3.At(p.UpdatedAt), Version: p.Version, Type: p.Type,
		Instances: p.Instances, MemoryInMB: p.MemoryMB, DiskInMB: p.DiskMB, LogRateLimit: logLimit(p.LogRate),
		HealthCheck: presentCheck(p.HealthCheck), ReadinessCheck: presentCheck(p.Readiness),
		Relationships: v3.ProcessRelationships{App: v3.To(p.App)},
		Metadata:      rest.PresentMetadata(p.Metadata),
		Links: v3.Links{
			"self":  {Href: self},
			"app":   {Href: h.Links.Href("v3", "apps", p.App)},
			"scale": {Href: self + "/actions/scale", Method: http.MethodPost},
			"stats": {Href: self + "/stats"},

			"process_instances": {Href: self + "/process_instances"},
		},
	}
	if command := cmp.Or(p.Command, detected); command != "" {
		text := present.HideSecret(command, open)
		out.Command = &text
	}
	if p.Started != nil && p.Started.Revision != "" {
		revision := v3.To(p.Started.Revision)
		out.Relationships.Revision = &revision
	}
	return out
}

func presentCheck(h app.HealthCheck) v3.HealthCheck {
	seconds := func(d time.Duration) *int {
		if d == 0 {
			return nil
		}
		n := int(d / time.Second)
		return &n
	}
	kind := h.Type
	if kind == app.CheckNone {
		kind = app.CheckProcess // this is Cloud Foundry's "always ready"
	}
	return v3.HealthCheck{Type: kind, Data: v3.HealthCheckData{
		Timeout: seconds(h.Timeout), InvocationTimeout: seconds(h.InvocationTimeout), Interval: seconds(h.Interval),
		Endpoint: h.Endpoint,
	}}
}

func (h processHandlers) killProcess(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.Kill](r)
	if err != nil {
		return nil, err
	}
	sig, err := readSignal(body.Signal)
	if err != nil {
		return nil, err
	}
	p, err := h.processOf(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Processes.Signal(r.Context(), p.GUID, body.Index, body.Sidecar, runtime.SentSignal{Number: int(sig), User: platform.ActorOf(r.Context()).Name})
	if errors.Is(err, runtime.ErrNoInstance) {
		// The message names the instance and the existing ones.
		return nil, &rest.Error{Status: http.StatusNotFound, Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// readSignal reads a signal such as KILL, SIGKILL or 9. The default is KILL.
func readSignal(name string) (syscall.Signal, error) {
	if name == "" {
		return syscall.SIGKILL, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= maxSignal {
		return syscall.Signal(n), nil
	}
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, &app.Invalid{Key: "signal", Message: fmt.Sprintf("must be a signal such as KILL, TERM or 9, not %q", name)}
}

// maxSignal is the highest signal number of Linux.
const maxSignal = 64
