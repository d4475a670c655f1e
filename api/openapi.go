package api

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
)

// openapiEndpoints returns the endpoints of this file.
func (s *Server) openapiEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /openapi.json", Needs: access.Public, Handler: s.getDescription, Shape: rest.Returns[map[string]any](200)},
	}
}

// getDescription is public, because it reveals nothing about existing resources.
func (s *Server) getDescription(*http.Request) (any, error) {
	return rest.Document(s.links.Public.String(), s.c.Version, s.described()), nil
}
