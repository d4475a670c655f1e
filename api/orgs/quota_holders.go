package orgs

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// beginQuotaRemoval records who wants a quota to go, and begins.
func (h *Handlers) beginQuotaRemoval(r *http.Request, k app.Quota, operation string) (any, error) {
	if err := h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordQuota("delete", k, access.Place{}, nil) }); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), operation, platform.Removal{GUID: k.GUID})
}
