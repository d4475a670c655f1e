package platform

import (
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// buildUsage keeps that a build began, or is over.
func (w Tx) buildUsage(a app.App, b droplet.Build, d *droplet.Droplet) error {
	u := app.Usage{
		State: app.UsageStagingStarted, Previous: string(b.State), App: app.Named{GUID: a.GUID, Name: a.Name}, Instances: app.Change{Now: 1, Before: 1},
	}
	if d == nil && b.State != droplet.BuildFailed {
		return w.Registry.RecordUsage(u, a.Space)
	}
	u.State = app.UsageStagingStopped
	if d != nil && len(d.Buildpacks) > 0 {
		u.Buildpack = d.Buildpacks[len(d.Buildpacks)-1].Name
	}
	if err := w.Registry.RecordUsage(u, a.Space); err != nil || d == nil {
		return err
	}
	u.State = app.UsageBuildpackSet
	return w.Registry.RecordUsage(u, a.Space)
}
