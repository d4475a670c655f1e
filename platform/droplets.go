package platform

import (
	"maps"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// AddProcesses gives an app the process types of a droplet, without instances:
// what a Procfile names waits until somebody scales it.
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

// PresentUsed shows the buildpacks that have made a droplet.
func PresentUsed(used []droplet.UsedBuildpack) []v3.DropletBuildpack {
	if len(used) == 0 { // from a time when there was no other
		used = []droplet.UsedBuildpack{{Name: droplet.BinaryBuildpack}}
	}
	out := []v3.DropletBuildpack{}
	for _, b := range used {
		out = append(out, v3.DropletBuildpack{Name: b.Name, DetectOutput: b.Detected, BuildpackName: strings.TrimSuffix(b.Name, "_buildpack")})
	}
	return out
}
