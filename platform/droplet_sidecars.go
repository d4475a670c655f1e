package platform

import (
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/registry"
)

// AddSidecars gives an app the sidecars that buildpacks have found for a droplet,
// in place of those of the droplet before. A sidecar that a user has given the app
// wins over one of the same name.
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
