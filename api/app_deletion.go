package api

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// appDeletionEndpoints are the endpoints of this file.
func (s *Server) appDeletionEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "DELETE /v3/apps/{guid}", Needs: access.Develop, Resource: access.App, Handler: s.deleteApp, Shape: rest.StartsJob()},
	}
}

func (s *Server) deleteApp(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordDeletion(a) })
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpDeleteApp, platform.Removal{GUID: a.GUID})
}
