package apps

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// appDeletionEndpoints are the endpoints of this file.
func (h *Handlers) appDeletionEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "DELETE /v3/apps/{guid}", Needs: access.Develop, Resource: access.App, Handler: h.deleteApp, Shape: rest.StartsJob()},
	}
}

func (h *Handlers) deleteApp(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordDeletion(a) })
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteApp, platform.Removal{GUID: a.GUID})
}
