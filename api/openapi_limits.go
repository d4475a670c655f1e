package api

import "github.com/dewrun/dew/api/v3"

// limitOperations are about what bounds orgs and spaces, what they have in common,
// and what they take.
var limitOperations = map[string]operation{
	"GET /v3/organization_quotas":                                     pageOf[v3.Quota]("names", "guids", "organization_guids"),
	"POST /v3/organization_quotas":                                    gives[v3.Quota](201).from(jsonOf[v3.ChangeQuota]()),
	"GET /v3/organization_quotas/{guid}":                              gives[v3.Quota](200),
	"PATCH /v3/organization_quotas/{guid}":                            gives[v3.Quota](200).from(jsonOf[v3.ChangeQuota]()),
	"DELETE /v3/organization_quotas/{guid}":                           begins(),
	"POST /v3/organization_quotas/{guid}/relationships/organizations": gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
	"GET /v3/organizations/{guid}/relationships/quota":                gives[v3.Related](200),
	"GET /v3/info/usage_summary":                                      gives[v3.PlaceUsage](200),
	"GET /v3/organizations/{guid}/usage_summary":                      gives[v3.PlaceUsage](200),

	"GET /v3/space_quotas":                                        pageOf[v3.Quota]("names", "guids", "organization_guids", "space_guids"),
	"POST /v3/space_quotas":                                       gives[v3.Quota](201).from(jsonOf[v3.ChangeQuota]()),
	"GET /v3/space_quotas/{guid}":                                 gives[v3.Quota](200),
	"PATCH /v3/space_quotas/{guid}":                               gives[v3.Quota](200).from(jsonOf[v3.ChangeQuota]()),
	"DELETE /v3/space_quotas/{guid}":                              begins(),
	"POST /v3/space_quotas/{guid}/relationships/spaces":           gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
	"DELETE /v3/space_quotas/{guid}/relationships/spaces/{space}": ends(204),
	"GET /v3/spaces/{guid}/usage_summary":                         gives[v3.PlaceUsage](200),

	"GET /v3/security_groups":                       pageOf[v3.SecurityGroup]("names", "guids", "running_space_guids", "staging_space_guids", "globally_enabled_running", "globally_enabled_staging"),
	"POST /v3/security_groups":                      gives[v3.SecurityGroup](201).from(jsonOf[v3.ChangeSecurityGroup]()),
	"GET /v3/security_groups/{guid}":                gives[v3.SecurityGroup](200),
	"PATCH /v3/security_groups/{guid}":              gives[v3.SecurityGroup](200).from(jsonOf[v3.ChangeSecurityGroup]()),
	"DELETE /v3/security_groups/{guid}":             begins(),
	"GET /v3/spaces/{guid}/running_security_groups": pageOf[v3.SecurityGroup]("names", "guids"),
	"GET /v3/spaces/{guid}/staging_security_groups": pageOf[v3.SecurityGroup]("names", "guids"),

	"POST /v3/security_groups/{guid}/relationships/running_spaces":           gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
	"POST /v3/security_groups/{guid}/relationships/staging_spaces":           gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
	"DELETE /v3/security_groups/{guid}/relationships/running_spaces/{space}": ends(204),
	"DELETE /v3/security_groups/{guid}/relationships/staging_spaces/{space}": ends(204),

	"GET /v3/isolation_segments":                      pageOf[v3.IsolationSegment]("names", "guids", "organization_guids", paramSelector),
	"POST /v3/isolation_segments":                     gives[v3.IsolationSegment](201).from(jsonOf[v3.ChangeIsolationSegment]()),
	"GET /v3/isolation_segments/{guid}":               gives[v3.IsolationSegment](200),
	"PATCH /v3/isolation_segments/{guid}":             gives[v3.IsolationSegment](200).from(jsonOf[v3.ChangeIsolationSegment]()),
	"DELETE /v3/isolation_segments/{guid}":            ends(204),
	"GET /v3/isolation_segments/{guid}/organizations": pageOf[v3.Organization]("names", "guids", paramSelector),

	"GET /v3/isolation_segments/{guid}/relationships/organizations":          gives[v3.RelatedMany](200),
	"POST /v3/isolation_segments/{guid}/relationships/organizations":         gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
	"DELETE /v3/isolation_segments/{guid}/relationships/organizations/{org}": ends(204),
	"GET /v3/isolation_segments/{guid}/relationships/spaces":                 gives[v3.RelatedMany](200),
	"GET /v3/spaces/{guid}/relationships/isolation_segment":                  gives[v3.Related](200),
	"PATCH /v3/spaces/{guid}/relationships/isolation_segment":                gives[v3.Related](200).from(jsonOf[v3.ToOne]()),
	"GET /v3/organizations/{guid}/relationships/default_isolation_segment":   gives[v3.Related](200),
	"PATCH /v3/organizations/{guid}/relationships/default_isolation_segment": gives[v3.Related](200).from(jsonOf[v3.ToOne]()),

	"GET /v3/environment_variable_groups/{name}":   gives[v3.EnvVarGroup](200),
	"PATCH /v3/environment_variable_groups/{name}": gives[v3.EnvVarGroup](200).from(jsonOf[v3.UpdateEnvVars]()),

	"GET /v3/app_usage_events":            pageOf[v3.AppUsageEvent]("after_guid", "guids").by(byTime...),
	"GET /v3/app_usage_events/{guid}":     gives[v3.AppUsageEvent](200),
	"GET /v3/service_usage_events":        pageOf[v3.ServiceUsageEvent]("after_guid", "guids", "service_instance_types", "service_offering_guids").by(byTime...),
	"GET /v3/service_usage_events/{guid}": gives[v3.ServiceUsageEvent](200),

	"POST /v3/app_usage_events/actions/destructively_purge_all_and_reseed":     gives[struct{}](200),
	"POST /v3/service_usage_events/actions/destructively_purge_all_and_reseed": gives[struct{}](200),
}
