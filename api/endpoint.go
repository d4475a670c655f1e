package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// Endpoint is one row of the API: the request it answers, what the caller needs,
// what it reads and returns, and who answers.
type Endpoint struct {
	Pattern  string    // as http.ServeMux reads it, with the method
	Needs    need      // what the caller must be allowed to do
	Resource resource  // what {guid} in the path names; zero: the need is the same everywhere
	Shape    operation // the query, the body and the responses
	Handler  handler
	Raw      http.Handler // answers instead of Handler where the response is no value, such as a stream

	Local  bool // answered on the socket of the daemon only
	Open   bool // without a token it shows what is public, unless a feature flag hides it
	Hidden bool // to callers without the need it does not exist
}

// check tells what a row lacks.
func (e Endpoint) check() error {
	var errs []error
	if e.Needs == 0 {
		errs = append(errs, errors.New("does not say what the caller needs"))
	}
	if (e.Handler == nil) == (e.Raw == nil) {
		errs = append(errs, errors.New("must have one handler"))
	}
	if len(e.Shape.gives) == 0 {
		errs = append(errs, errors.New("does not say what it returns"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("endpoint %q: %w", e.Pattern, errors.Join(errs...))
	}
	return nil
}

// endpoints are all rows of the API.
func (s *Server) endpoints() []Endpoint {
	return slices.Concat(
		s.appDeletionEndpoints(),
		s.appsEndpoints(),
		s.buildpackChangesEndpoints(),
		s.buildpackFoldersEndpoints(),
		s.buildpacksEndpoints(),
		s.buildsEndpoints(),
		s.copiesEndpoints(),
		s.deploymentsEndpoints(),
		s.destinationsEndpoints(),
		s.domainsEndpoints(),
		s.dropletsEndpoints(),
		s.envEndpoints(),
		s.environmentVariableGroupsEndpoints(),
		s.eventsEndpoints(),
		s.featuresEndpoints(),
		s.flagsEndpoints(),
		s.inboxEndpoints(),
		s.infoEndpoints(),
		s.isolationSegmentsEndpoints(),
		s.jobsEndpoints(),
		s.localEndpoints(),
		s.logcacheEndpoints(),
		s.manifestsEndpoints(),
		s.metricsEndpoints(),
		s.openapiEndpoints(),
		s.orgsEndpoints(),
		s.packagesEndpoints(),
		s.processesEndpoints(),
		s.quotasEndpoints(),
		s.reservationsEndpoints(),
		s.revisionsEndpoints(),
		s.rolesEndpoints(),
		s.rootEndpoints(),
		s.routeSharingEndpoints(),
		s.routerGroupsEndpoints(),
		s.routesEndpoints(),
		s.securityGroupsEndpoints(),
		s.serviceBindingsEndpoints(),
		s.serviceBrokersEndpoints(),
		s.serviceInstancesEndpoints(),
		s.serviceOfferingsEndpoints(),
		s.servicePlansEndpoints(),
		s.serviceRouteBindingsEndpoints(),
		s.serviceSharingEndpoints(),
		s.serviceSnapshotsEndpoints(),
		s.sidecarsEndpoints(),
		s.spacesEndpoints(),
		s.stacksEndpoints(),
		s.statsEndpoints(),
		s.streamEndpoints(),
		s.tasksEndpoints(),
		s.usageEventsEndpoints(),
		s.usageSummaryEndpoints(),
		s.usersEndpoints(),
	)
}

type shapeKey struct{}

// withShape hands the shape of an endpoint to its handler.
func withShape(ctx context.Context, shape operation) context.Context {
	return context.WithValue(ctx, shapeKey{}, shape)
}

// shapeOf is the shape of the endpoint that a request is for.
func shapeOf(ctx context.Context) operation {
	shape, _ := ctx.Value(shapeKey{}).(operation)
	return shape
}
