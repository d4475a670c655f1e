package platform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services/bindingfiles"
	"github.com/dewrun/dew/store"
)

// recordBuild records the events of a build and of its droplet. It uses the
// transactions in which they are stored.
func (p *Platform) recordBuild(tx *store.Tx, b droplet.Build, d *droplet.Droplet) error {
	w := Tx{Registry: p.Registry.With(tx), Events: p.Events.With(tx), Actor: b.By}
	a, err := w.Registry.App(b.App)
	if errors.Is(err, app.ErrNotFound) {
		return nil // the app was deleted since
	}
	if err != nil {
		return err
	}
	if err := w.buildUsage(a, b, d); err != nil {
		return err
	}
	data := map[string]any{"build_guid": b.GUID, "package_guid": b.Package}
	switch {
	case b.State == droplet.BuildFailed:
		id, _, _ := strings.Cut(b.Error, " ") // "NoAppDetectedError - …"
		data["error_id"], data["error_message"] = id, b.Error
		return w.Record("audit.app.build.failed", a, data)
	case d != nil:
		return w.recordStaged(a, b, *d)
	}
	if b.Fresh {
		if err := w.Record("audit.app.restage", a, nil); err != nil {
			return err
		}
	}
	return w.Record("audit.app.build.create", a, data)
}

// recordStaged records a droplet, and that a build created it.
func (w Tx) recordStaged(a app.App, b droplet.Build, d droplet.Droplet) error {
	if err := w.Record("audit.app.droplet.create", a, map[string]any{"droplet_guid": d.GUID, "package_guid": b.Package}); err != nil {
		return err
	}
	data := map[string]any{"build_guid": b.GUID, "package_guid": b.Package, "droplet_guid": d.GUID, "buildpacks": nil}
	if d.Run == nil { // an image has none
		data["buildpacks"] = usedBuildpacks(d)
	}
	return w.Record("audit.app.build.staged", a, data)
}

// usedBuildpacks returns the buildpacks that created a droplet, in the format of Cloud
// Foundry events.
func usedBuildpacks(d droplet.Droplet) []map[string]any {
	out := []map[string]any{}
	for _, b := range PresentUsed(d.Buildpacks) {
		out = append(out, map[string]any{"name": b.Name, "buildpack_name": b.BuildpackName, "version": b.Version})
	}
	return out
}

// The jobs on buildpacks and droplets that clients wait for.
const (
	OpDeleteBuildpack = "buildpack.delete"
	OpUploadBuildpack = "buildpack.upload"
	OpUploadDroplet   = "droplet.upload"
	OpClearCache      = "admin.clear_buildpack_cache"
	OpClearAppCache   = "app.clear_buildpack_cache"
)

// StagingTarget holds the arguments of these jobs.
type StagingTarget struct {
	GUID string `json:"guid"`
}

// stagingOperations registers these jobs. Bits are stored before the response, so the
// upload jobs only check that the resource exists.
func (p *Platform) stagingOperations() {
	for operation, do := range map[string]func(guid string) error{
		OpDeleteBuildpack: Deletions{p}.deleteBuildpack,
		OpUploadBuildpack: func(guid string) error { _, err := p.Catalog.Get(guid); return err },
		OpUploadDroplet:   func(guid string) error { _, err := p.Droplets.Get(guid); return err },
		OpClearCache:      func(string) error { return p.Builds.Caches().Clear() },
		OpClearAppCache:   p.Builds.Caches().ClearOf,
	} {
		p.Jobs.Handle(operation, func(_ context.Context, j app.Job) ([]string, error) {
			var a StagingTarget
			if err := json.Unmarshal(j.Args, &a); err != nil {
				return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
			}
			return nil, do(a.GUID)
		})
	}
}

// deleteBuildpack deletes a buildpack, or the uploaded version of a built-in one. A
// buildpack that no longer exists is not an error.
func (del Deletions) deleteBuildpack(guid string) error {
	if err := del.Catalog.Delete(guid); err != nil && !errors.Is(err, droplet.ErrNotFound) && !errors.Is(err, droplet.ErrBuildpackOwn) {
		return err
	}
	return nil
}

// CheckStart refuses an app that cannot run, before anything is created for it. It also
// writes the reason to the app's log.
func (p *Platform) CheckStart(reg *registry.Registry, a *app.App) error {
	if err := hasDroplet(a); err != nil {
		return err
	}
	d, err := p.Droplets.Get(a.Droplet)
	if errors.Is(err, droplet.ErrNotFound) {
		return nil // the start itself reports a better error
	}
	if err != nil {
		return err
	}
	if err := p.checkBindingFiles(*a, d); err != nil {
		return err
	}
	ps, err := reg.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, process := range ps {
		if process.Instances == 0 {
			continue
		}
		sidecars, err := reg.SidecarsOf(a.GUID, process.Type)
		if err != nil {
			return err
		}
		err = d.CheckMemory(process.Type, sidecars)
		if process.Type == app.Web && err == nil { // other types can come from an older droplet
			_, err = d.Command(process)
		}
		if err != nil {
			p.logError(a.GUID, err.Error())
			return Refuse("%v", err)
		}
	}
	return nil
}

// checkBindingFiles refuses an app whose service bindings cannot become files.
func (p *Platform) checkBindingFiles(a app.App, d droplet.Droplet) (err error) {
	bindings := d.Bindings
	if p.Bindings != nil {
		if bindings, err = p.Bindings(a.GUID); err != nil {
			return err
		}
	}
	if _, err = bindingfiles.Of(a.K8sBindings, a.VCAPBindings).Files(bindings.Variable()); err != nil {
		p.logError(a.GUID, err.Error())
		return Refuse("%v", err)
	}
	return nil
}

// logError writes an error to the app's log.
func (p *Platform) logError(appGUID, text string) {
	l, err := p.Logs.App(appGUID)
	if err == nil {
		err = l.Append(logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Err, Text: []byte(text)})
	}
	if err != nil {
		p.Log.Warn("cannot write to the app's log", "app", appGUID, "err", err)
	}
}

// Stacks returns the existing stacks. The stack names of Cloud Foundry are aliases of
// the default stack, not separate stacks.
func (p *Platform) Stacks() *stack.Stacks { return p.Builds.StackStore() }

// UsableStacks returns the stacks that apps can use.
func (p *Platform) UsableStacks() ([]stack.Record, error) {
	all, err := p.Stacks().All()
	return slices.DeleteFunc(all, func(k stack.Record) bool { return k.State != stack.StateReady }), err
}

// RunsOn reports whether an app runs on a stack.
func RunsOn(a app.App, k stack.Record) bool {
	if k.Default && stack.Check(a.Stack) == nil {
		return !a.Docker()
	}
	return a.Stack == k.Name
}

// CheckStack refuses a build with a stack that the app can no longer use.
func (p *Platform) CheckStack(a app.App) (warnings []string, err error) {
	if a.Docker() {
		return nil, nil
	}
	all, err := p.UsableStacks()
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if !RunsOn(a, k) {
			continue
		}
		is, err := p.Stacks().Access(k.GUID)
		if err != nil {
			return nil, err
		}
		text, err := is.CheckStaging(k.Name, a.Droplet != "")
		if err != nil {
			return nil, Refuse("%v", err)
		}
		if text != "" {
			p.LogToApp(a.GUID, text)
			return []string{text}, nil
		}
	}
	return nil, nil
}

// AddProcesses adds the process types of a droplet to an app. They have no instances
// until a user scales them.
func (w Tx) AddProcesses(a app.App, d droplet.Droplet) error {
	ps, err := w.Registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(d.Commands)) {
		if slices.ContainsFunc(ps, func(p app.Process) bool { return p.Type == kind }) {
			continue
		}
		if _, err := w.Registry.PutProcess(app.Process{App: a.GUID, Type: kind}); err != nil {
			return err
		}
	}
	return w.RecordNew(a, ps, nil)
}

// PresentUsed returns the buildpacks that created a droplet in the format of the API.
func PresentUsed(used []droplet.UsedBuildpack) []v3.DropletBuildpack {
	if len(used) == 0 { // the droplet is from a version with only one buildpack
		used = []droplet.UsedBuildpack{{Name: droplet.BinaryBuildpack}}
	}
	out := []v3.DropletBuildpack{}
	for _, b := range used {
		short := strings.TrimSuffix(b.Name, "_buildpack")
		b.Called = cmp.Or(b.Called, short)
		if b.Detected == "" && !b.Custom {
			b.Detected = short // it was named, so its bin/detect did not run
		}
		out = append(out, v3.DropletBuildpack{Name: b.Name, DetectOutput: b.Detected, BuildpackName: b.Called, Version: b.Version})
	}
	return out
}

// AddSidecars adds the sidecars that buildpacks defined for a droplet. They replace
// those of the previous droplet. A sidecar that a user defined has precedence over one
// with the same name.
func AddSidecars(reg *registry.Registry, appGUID string, d droplet.Droplet) error {
	have, err := reg.Sidecars(appGUID)
	if err != nil {
		return err
	}
	named := func(name string) func(app.Sidecar) bool {
		return func(s app.Sidecar) bool { return strings.EqualFold(s.Name, name) }
	}
	for _, old := range have {
		found := slices.ContainsFunc(d.Sidecars, func(f droplet.FoundSidecar) bool { return strings.EqualFold(f.Name, old.Name) })
		if old.Origin != app.OriginBuildpack || found {
			continue
		}
		if err := reg.DeleteSidecar(old.GUID); err != nil {
			return err
		}
	}
	for _, f := range d.Sidecars {
		s := app.Sidecar{App: appGUID, Origin: app.OriginBuildpack}
		if i := slices.IndexFunc(have, named(f.Name)); i >= 0 {
			if s = have[i]; s.Origin == app.OriginUser {
				continue
			}
		}
		s.Name, s.Command, s.ProcessTypes, s.MemoryMB = f.Name, f.Command, f.ProcessTypes, f.MemoryMB
		if _, err := reg.PutSidecar(s); err != nil {
			return err
		}
	}
	return nil
}
