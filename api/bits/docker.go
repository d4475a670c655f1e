package bits

import (
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
)

// createDockerPackage makes a package of an image. It is fetched when it is staged.
func (h *Handlers) createDockerPackage(r *http.Request, a app.App, body v3.CreatePackage) (droplet.Package, error) {
	var none droplet.Package
	if !a.Docker() {
		return none, rest.Unprocessable("Cannot create Docker package for a buildpack app.")
	}
	if err := h.Present.MayDocker(r.Context()); err != nil {
		return none, err
	}
	data, err := rest.DecodeBytes[v3.DockerData](append([]byte{}, body.Data...))
	if err != nil {
		return none, rest.Unprocessable("data must be an object with image, and perhaps username and password")
	}
	if data.Image == "" {
		return none, rest.Unprocessable("data.image can't be blank")
	}
	if err := stack.CheckImageRef(data.Image); err != nil {
		return none, rest.Unprocessable("data.image: %v", err)
	}
	return h.Platform.Packages.CreateImage(a.GUID, stack.ImageSource{Ref: data.Image, Username: data.Username, Password: data.Password})
}
