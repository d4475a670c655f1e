package platform

import (
	"errors"
	"strings"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/store"
)

// recordBuild keeps the events of a build and of its droplet in the transactions
// that keep them.
func (p *Platform) recordBuild(tx *store.Tx, b droplet.Build, d *droplet.Droplet) error {
	w := Tx{Registry: p.Registry.With(tx), Events: p.Events.With(tx), Actor: b.By}
	a, err := w.Registry.App(b.App)
	if errors.Is(err, app.ErrNotFound) {
		return nil // it was deleted meanwhile
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

// recordStaged records a droplet, and that a build has made it.
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

// usedBuildpacks are the buildpacks that have made a droplet, as the platform's
// events name them.
func usedBuildpacks(d droplet.Droplet) []map[string]any {
	out := []map[string]any{}
	for _, b := range PresentUsed(d.Buildpacks) {
		out = append(out, map[string]any{"name": b.Name, "buildpack_name": b.BuildpackName, "version": b.Version})
	}
	return out
}
