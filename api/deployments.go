package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// listDeployments is empty: instances are replaced all at once. Clients ask for
// it whenever they show an app.
func (s *Server) listDeployments(r *http.Request) (any, error) {
	q, err := readQuery(r, "app_guids", "status_values", "status_reasons", "states", paramSelector)
	if err != nil {
		return nil, err
	}
	return list(s, r, q, nil, look[v3.Deployment, v3.Deployment]{
		key:     func(d v3.Deployment) key { return key{guid: d.GUID} },
		present: func(d v3.Deployment) v3.Deployment { return d },
	}), nil
}

func (s *Server) createDeployment(*http.Request) (any, error) {
	return nil, unprocessable("Rolling and canary deployments are not offered: push, restart or restage without --strategy, " +
		"which replaces all instances at once")
}

func (s *Server) getDeployment(*http.Request) (any, error) { return nil, notFound("Deployment") }
