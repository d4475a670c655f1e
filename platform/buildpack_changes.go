package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
)

// Operations on buildpacks and droplets that clients wait for.
const (
	OpDeleteBuildpack = "buildpack.delete"
	OpUploadBuildpack = "buildpack.upload"
	OpUploadDroplet   = "droplet.upload"
	OpClearCache      = "admin.clear_buildpack_cache"
	OpClearAppCache   = "app.clear_buildpack_cache"
)

// StagingThing are the arguments of these operations.
type StagingThing struct {
	GUID string `json:"guid"`
}

// stagingOperations gives the jobs their operations. Bits are taken in before the
// answer: what is left to do is what clients ask for afterwards.
func (p *Platform) stagingOperations() {
	for operation, do := range map[string]func(guid string) error{
		OpDeleteBuildpack: p.doDeleteBuildpack,
		OpUploadBuildpack: func(guid string) error { _, err := p.Catalog.Get(guid); return err },
		OpUploadDroplet:   func(guid string) error { _, err := p.Droplets.Get(guid); return err },
		OpClearCache:      func(string) error { return p.Builds.ClearCache() },
		OpClearAppCache:   p.Builds.ClearCacheOf,
	} {
		p.Jobs.Handle(operation, func(_ context.Context, j app.Job) ([]string, error) {
			var a StagingThing
			if err := json.Unmarshal(j.Args, &a); err != nil {
				return nil, fmt.Errorf("cannot read the arguments of job %s: %w", j.GUID, err)
			}
			return nil, do(a.GUID)
		})
	}
}

// doDeleteBuildpack removes a buildpack, or what was uploaded in the place of one
// that came with the daemon. That it is gone is no error.
func (p *Platform) doDeleteBuildpack(guid string) error {
	if err := p.Catalog.Delete(guid); err != nil && !errors.Is(err, droplet.ErrNotFound) && !errors.Is(err, droplet.ErrBuildpackOwn) {
		return err
	}
	return nil
}

// MayStart refuses an app that could not run, before anything is made for it, and
// says so in its log too.
func (p *Platform) MayStart(reg *registry.Registry, a *app.App) error {
	if err := hasDroplet(a); err != nil {
		return err
	}
	d, err := p.Droplets.Get(a.Droplet)
	if errors.Is(err, droplet.ErrNotFound) {
		return nil // the start itself says it better
	}
	if err != nil {
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
		if process.Type == app.Web && err == nil { // other types may be those of an older droplet
			_, err = d.Command(process)
		}
		if err != nil {
			p.sayError(a.GUID, err.Error())
			return Refuse("%v", err)
		}
	}
	return nil
}

// sayError is say for what went wrong.
func (p *Platform) sayError(appGUID, text string) {
	l, err := p.Logs.App(appGUID)
	if err == nil {
		err = l.Append(logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Err, Text: []byte(text)})
	}
	if err != nil {
		p.Log.Warn("cannot write to the app's log", "app", appGUID, "err", err)
	}
}
