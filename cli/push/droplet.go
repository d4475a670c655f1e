package push

import (
	"context"
	"fmt"
	"os"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/console"
)

// checkDroplet reports flags that contradict --droplet or --task.
func (o Options) checkDroplet() error {
	switch {
	case o.Task && (o.Deploy.Gradual() || o.RandomRoute):
		return console.UsageError("--task cannot be used with --strategy or --random-route: dew does not start the app")
	case o.Droplet == "":
		return nil
	case o.Path != "" || o.Image != "" || len(o.Buildpacks) > 0:
		return console.UsageError("--droplet cannot be used with -p, -b or --docker-image: a droplet is already staged")
	}
	info, err := os.Stat(o.Droplet)
	if err != nil {
		return console.UsageError("--droplet: %w", err)
	}
	if !info.Mode().IsRegular() {
		return console.UsageError("--droplet: %s is not a file", o.Droplet)
	}
	return nil
}

// withTaskDefaults are the options for --task: no route, no start, and a health check
// that only looks at the process.
func (o Options) withTaskDefaults() Options {
	if o.Task {
		o.NoRoute, o.NoStart, o.Health = true, true, "process"
	}
	return o
}

// pushDroplet uploads a droplet that was staged before.
func pushDroplet(ctx context.Context, o Options, a v3.App, api *client.Client, out *console.Console) (apps.View, error) {
	d, err := api.Bits().CreateDroplet(ctx, a.GUID)
	if err != nil {
		return apps.View{}, fmt.Errorf("cannot create a droplet for %s: %w", a.Name, err)
	}
	out.Say("Uploading droplet %s", o.Droplet)
	wait := out.Wait("Uploading droplet %s", o.Droplet)
	defer wait.End()
	if err := api.Bits().UploadDroplet(ctx, d.GUID, o.Droplet); err != nil {
		return apps.View{}, fmt.Errorf("cannot upload the droplet of %s: %w", a.Name, err)
	}
	wait.End()
	return o.run(ctx, a, d.GUID, api, out)
}

// run sets the droplet of an app and starts the app, unless the options say not to.
func (o Options) run(ctx context.Context, a v3.App, droplet string, api *client.Client, out *console.Console) (apps.View, error) {
	if o.Deploy.Gradual() {
		size, err := o.size()
		if err != nil {
			return apps.View{}, err
		}
		return apps.Deploy(ctx, a, apps.DeploySpec{Options: o.Deploy, Droplet: droplet, Size: size}, api, out)
	}
	if err := api.Bits().SetDroplet(ctx, a.GUID, droplet); err != nil {
		return apps.View{}, err
	}
	if o.NoStart {
		return stopped(ctx, a, api, out)
	}
	out.Say("Starting app %s…", a.Name)
	return apps.StartAndWait(ctx, a, client.Restart, api, out)
}

// stopped stops an app if it is started, and returns its status.
func stopped(ctx context.Context, a v3.App, api *client.Client, out *console.Console) (apps.View, error) {
	if a.State == v3.AppStarted {
		defer out.Wait("Stopping app %s", a.Name).End()
		var err error
		if a, err = api.Apps().SetState(ctx, a.GUID, client.Stop); err != nil {
			return apps.View{}, err
		}
	}
	return apps.ReadView(ctx, api, a)
}
