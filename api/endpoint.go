package api

import (
	"slices"

	"github.com/dewrun/dew/api/rest"
)

// endpoints returns all rows of the API.
func (s *Server) endpoints() []rest.Endpoint {
	return slices.Concat(
		s.openapiEndpoints(), s.daemon.Endpoints(), s.orgs.Endpoints(), s.apps.Endpoints(), s.bits.Endpoints(),
		s.routes.Endpoints(), s.market.Endpoints(), s.logs.Endpoints(),
	)
}
