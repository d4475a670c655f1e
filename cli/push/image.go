package push

import (
	"context"
	"errors"
	"os"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/console"
)

// dockerPassword is the variable in which cf looks for the password of a registry.
const dockerPassword = "CF_DOCKER_PASSWORD"

// overrideStack puts what the app stands on, a stack or its own image, over what
// the manifest says.
func (o Options) overrideStack(a *app.ManifestApp) error {
	if o.Username != "" && o.Image == "" && a.Docker == nil {
		return console.UsageError("--docker-username needs --docker-image")
	}
	if o.Image != "" && (o.Path != "" || len(o.Buildpacks) > 0 || o.Stack != "") {
		return console.UsageError("--docker-image goes with none of -p, -b and -s: an app is either an image or made of files")
	}
	if o.Stack != "" {
		a.Stack = &o.Stack
	}
	if o.Image != "" {
		a.Docker, a.Path, a.Buildpacks, a.Stack, a.Lifecycle = &app.ManifestDocker{Image: o.Image}, "", nil, nil, ""
	}
	if o.Username != "" {
		a.Docker.Username = o.Username
	}
	return nil
}

// gather finds the app's files, or what is needed to fetch its image.
func (t *target) gather(ctx context.Context, o Options, out *console.Console) (err error) {
	if o.Droplet != "" {
		return nil // there is nothing to stage
	}
	if t.app.Docker == nil {
		if err := errors.Join(t.checkBits(o), t.gatherBuildpacks(o, out)); err != nil {
			return err
		}
		t.bits, err = gather(t.bitsPath(o), out)
		return err
	}
	t.image = &v3.DockerData{Image: t.app.Docker.Image, Username: t.app.Docker.Username}
	if t.image.Username == "" {
		return nil
	}
	if os.Getenv(dockerPassword) == "" && !out.Interactive {
		return console.UsageError("the registry's password for %s must be in %s", t.image.Username, dockerPassword)
	}
	t.image.Password, err = out.Password(ctx, console.SecretOptions{Env: dockerPassword, Prompt: "Password of " + t.image.Username})
	return err
}

// send gives the app a new package.
func (t target) send(ctx context.Context, a v3.App, ask *client.Client, out *console.Console) (v3.Package, error) {
	if t.image == nil {
		return sendBits(ctx, a, t.bits, ask, out)
	}
	return ask.Bits().CreateImagePackage(ctx, a.GUID, *t.image)
}
