package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// brokerVersion is the version of the service broker API that brokers are asked in.
const brokerVersion = "2.16"

// indexed are the collections that GET /v3 names.
var indexed = []string{
	"app_usage_events", "apps", "audit_events", "buildpacks", "builds", "deployments", "domains", "droplets",
	"environment_variable_groups", "feature_flags", "info", "isolation_segments", "organization_quotas", "organizations",
	"packages", "processes", "resource_matches", "roles", "routes", "security_groups", "service_brokers",
	"service_credential_bindings", "service_instances", "service_offerings", "service_plans", "service_route_bindings",
	"service_usage_events", "space_quotas", "spaces", "stacks", "tasks", "users",
}

// about is what the platform tells of itself.
func (s *Server) about() map[string]handler {
	return map[string]handler{
		"GET /v3":      s.index,
		"GET /v3/info": s.platformInfo,

		"GET /v3/info/usage_summary": s.getUsage,
	}
}

func (s *Server) index(*http.Request) (any, error) {
	links := v3.Links{"self": {Href: s.href("v3")}}
	for _, name := range indexed {
		links[name] = v3.Link{Href: s.href("v3", name)}
	}
	return v3.Index{Links: links}, nil
}

func (s *Server) platformInfo(*http.Request) (any, error) {
	return v3.Info{
		Build: s.c.Version, Name: "dew", Description: "Cloud Foundry style apps and their sidecars on one machine",
		BrokerVersion: brokerVersion, Custom: map[string]string{},
		Links: v3.Links{"self": {Href: s.href("v3", "info")}},
	}, nil
}
