package bits

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// buildpackFoldersEndpoints are the endpoints of this file.
func (h *Handlers) buildpackFoldersEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "POST /dew/v1/spaces/{guid}/buildpacks", Needs: access.Develop, Resource: access.Space,
			Handler: h.uploadFolder, Shape: rest.Returns[v3.UploadedFolder](201).Reads(uploadForm).Query("name"),
		},
	}
}

// uploadFolder takes in a folder of the caller as a buildpack for the apps of a space.
// It runs where any pushed code runs, so that it needs the rights of a push.
func (h *Handlers) uploadFolder(r *http.Request) (any, error) {
	if err := h.Present.Feature(r.Context(), app.FlagBitsUpload); err != nil {
		return nil, err
	}
	if r.ContentLength > h.MaxUpload {
		return nil, rest.ErrTooLarge
	}
	form, err := h.readUpload(r)
	defer form.close()
	if err != nil {
		return nil, err
	}
	u := droplet.FolderUpload{Space: r.PathValue("guid"), Name: r.URL.Query().Get("name"), Matched: form.matched, Size: form.size}
	if form.bits != nil {
		u.Zip = form.bits
	}
	name, err := h.Platform.Builds.AddFolder(r.Context(), u)
	return rest.Answer{Status: http.StatusCreated, Body: v3.UploadedFolder{Name: name}}, err
}
