package bits

import (
	"context"
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// sourceGUID returns the GUID of the resource to copy, or "" if the request is not a
// copy.
func sourceGUID(r *http.Request) string { return r.URL.Query().Get("source_guid") }

// targetApp returns the app that receives a copy.
func (h *Handlers) targetApp(ctx context.Context, guid string) (app.App, error) {
	a, err := h.Present.AppInBody(ctx, access.Develop, guid)
	if platform.IsNotFound(err) {
		return a, rest.Unprocessable("App with guid \"%s\" does not exist, or you do not have access to it.", guid)
	}
	return a, err
}

// notStaged turns droplet.ErrNotReady into a 422 response: a resource without files
// cannot be copied or downloaded.
func notStaged(err error, text string) error {
	if errors.Is(err, droplet.ErrNotReady) {
		return rest.Unprocessable("%s", text)
	}
	return err
}
