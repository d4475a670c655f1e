package registry

import (
	"maps"

	"github.com/dewrun/dew/app"
)

// appDiffers tells whether containers of the app would differ from those started
// before. Buildpacks count only once they have made another droplet. The name is
// part of every container's VCAP_APPLICATION.
func appDiffers(old, a app.App) bool {
	return old.Name != a.Name ||
		old.Space != a.Space ||
		old.Stack != a.Stack ||
		old.Droplet != a.Droplet ||
		!maps.Equal(old.Env, a.Env)
}

// starts tells whether the change is the wish to start.
func starts(old, a app.App) bool { return old.State == app.Stopped && a.State == app.Started }
