package api

import (
	"slices"

	"github.com/dewrun/dew/api/rest"
)

// endpoints are all rows of the API.
func (s *Server) endpoints() []rest.Endpoint {
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
