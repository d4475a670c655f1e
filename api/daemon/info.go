package daemon

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
)

// infoHandlers answers requests about the platform.
type infoHandlers struct{ *Handlers }

func (h infoHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3", Needs: access.Authenticated, Handler: h.index, Shape: rest.Returns[v3.Index](200)},
		{Pattern: "GET /v3/info", Needs: access.Authenticated, Handler: h.platformInfo, Shape: rest.Returns[v3.Info](200)},
	}
}

// brokerVersion is the version of the service broker API that dewd uses with brokers.
const brokerVersion = "2.16"

// indexed lists the collections that GET /v3 names.
var indexed = []string{
	"app_usage_events", "apps", "audit_events", "buildpacks", "builds", "deployments", "domains", "droplets",
	"environment_variable_groups", "feature_flags", "info", "isolation_segments", "organization_quotas", "organizations",
	"packages", "processes", "resource_matches", "roles", "routes", "security_groups", "service_brokers",
	"service_credential_bindings", "service_instances", "service_offerings", "service_plans", "service_route_bindings",
	"service_usage_events", "space_quotas", "spaces", "stacks", "tasks", "users",
}

func (h infoHandlers) index(*http.Request) (any, error) {
	links := v3.Links{"self": {Href: h.Links.Href("v3")}}
	for _, name := range indexed {
		links[name] = v3.Link{Href: h.Links.Href("v3", name)}
	}
	return v3.Index{Links: links}, nil
}

func (h infoHandlers) platformInfo(*http.Request) (any, error) {
	return v3.Info{
		Build: h.Version, Name: "dew", Description: "Cloud Foundry style apps and their sidecars on one machine",
		BrokerVersion: brokerVersion, Custom: map[string]string{},
		Links: v3.Links{"self": {Href: h.Links.Href("v3", "info")}},
	}, nil
}
