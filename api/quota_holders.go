package api

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// beginQuotaRemoval records who wants a quota to go, and begins.
func (s *Server) beginQuotaRemoval(r *http.Request, k app.Quota, operation string) (any, error) {
	if err := s.platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordQuota("delete", k, access.Place{}, nil) }); err != nil {
		return nil, err
	}
	return s.begin(r.Context(), operation, platform.Removal{GUID: k.GUID})
}
