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

// dockerPassword is the environment variable for the password of a registry, as in cf.
const dockerPassword = "CF_DOCKER_PASSWORD"

// overrideStack sets the stack or the image of the app from the flags.
func (o Options) overrideStack(a *app.ManifestApp) error {
	if o.Username != "" && o.Image == "" && a.Docker == nil {
		return console.UsageError("--docker-username needs --docker-image")
	}
	if o.Image != "" && (o.Path != "" || len(o.Buildpacks) > 0 || o.Stack != "") {
		return console.UsageError("--docker-image cannot be used with -p, -b or -s: an app is either an image or made of files")
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

// gather lists the app's files, or reads the credentials for its image.
func (t *target) gather(ctx context.Context, o Options, out *console.Console) (err error) {
	if o.Droplet != "" {
		return nil // nothing to stage
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
		return console.UsageError("cannot ask for the registry password of %s without a terminal: set %s", t.image.Username, dockerPassword)
	}
	t.image.Password, err = out.Password(ctx, console.SecretOptions{Env: dockerPassword, Prompt: "Password for " + t.image.Username})
	return err
}

// send creates a new package of the app.
func (t target) send(ctx context.Context, a v3.App, api *client.Client, out *console.Console) (v3.Package, error) {
	if t.image == nil {
		return sendBits(ctx, a, t.bits, api, out)
	}
	return api.Bits().CreateImagePackage(ctx, a.GUID, *t.image)
}
