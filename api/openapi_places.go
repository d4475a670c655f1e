package api

import "github.com/dewrun/dew/api/v3"

// manifestBody is what apps are pushed with.
var manifestBody = bytesOf(v3.ManifestType)

// placeOperations are about what apps live in, who may go there, and how apps are reached.
var placeOperations = map[string]operation{
	"GET /v3/audit_events":        pageOf[v3.Event]("guids", "types", "target_guids", "target_guids[not]", "space_guids", "organization_guids", "actor_guids").by(byTime...),
	"GET /v3/audit_events/{guid}": gives[v3.Event](200),

	"GET /v3/domains":           pageOf[v3.Domain]("names", "guids", "organization_guids", paramSelector),
	"POST /v3/domains":          gives[v3.Domain](201).from(jsonOf[v3.CreateDomain]()),
	"DELETE /v3/domains/{guid}": begins(),
	"GET /v3/domains/{guid}":    gives[v3.Domain](200),
	"PATCH /v3/domains/{guid}":  gives[v3.Domain](200).from(jsonOf[v3.UpdateDomain]()),
	"POST /v3/domains/{guid}/relationships/shared_organizations":         gives[v3.ToMany](200).from(jsonOf[v3.ToMany]()),
	"DELETE /v3/domains/{guid}/relationships/shared_organizations/{org}": ends(204),
	"GET /v3/domains/{guid}/route_reservations":                          gives[v3.Reservation](200).ask("host", "path", "port"),

	"GET /v3/feature_flags":          pageOf[v3.FeatureFlag](),
	"GET /v3/feature_flags/{name}":   gives[v3.FeatureFlag](200),
	"PATCH /v3/feature_flags/{name}": gives[v3.FeatureFlag](200).from(jsonOf[v3.UpdateFeatureFlag]()),

	"GET /v3/jobs/{guid}": gives[v3.Job](200),

	"GET /v3/organizations":                        pageOf[v3.Organization]("names", "guids", paramSelector),
	"POST /v3/organizations":                       gives[v3.Organization](201).from(jsonOf[v3.CreateOrganization]()),
	"DELETE /v3/organizations/{guid}":              begins(),
	"GET /v3/organizations/{guid}":                 gives[v3.Organization](200),
	"PATCH /v3/organizations/{guid}":               gives[v3.Organization](200).from(jsonOf[v3.UpdateOrganization]()),
	"GET /v3/organizations/{guid}/domains":         pageOf[v3.Domain]("names", "guids", "organization_guids", paramSelector),
	"GET /v3/organizations/{guid}/domains/default": gives[v3.Domain](200),
	"GET /v3/organizations/{guid}/users":           pageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", paramSelector).by(byTime...),

	"GET /v3/roles":           pageOf[v3.Role]("guids", "types", "user_guids", "organization_guids", "space_guids", "include").by(byTime...),
	"POST /v3/roles":          gives[v3.Role](201).from(jsonOf[v3.CreateRole]()),
	"DELETE /v3/roles/{guid}": begins(),
	"GET /v3/roles/{guid}":    gives[v3.Role](200).ask("include"),

	"GET /v3/routes":                                               pageOf[v3.Route]("space_guids", "organization_guids", "app_guids", "service_instance_guids", "guids", "domain_guids", "hosts", "paths", "ports", "include", paramSelector).by(byTime...),
	"POST /v3/routes":                                              gives[v3.Route](201).from(jsonOf[v3.CreateRoute]()),
	"DELETE /v3/routes/{guid}":                                     begins(),
	"GET /v3/routes/{guid}":                                        gives[v3.Route](200).ask("include"),
	"PATCH /v3/routes/{guid}":                                      gives[v3.Route](200).from(jsonOf[v3.UpdateRoute]()),
	"GET /v3/routes/{guid}/relationships/shared_spaces":            gives[v3.SharedSpaces](200),
	"POST /v3/routes/{guid}/relationships/shared_spaces":           gives[v3.SharedSpaces](200).from(jsonOf[v3.ShareServiceInstance]()),
	"DELETE /v3/routes/{guid}/relationships/shared_spaces/{space}": ends(204),
	"PATCH /v3/routes/{guid}/relationships/space":                  gives[v3.Related](200).from(jsonOf[v3.ToOne]()),

	"GET /v3/routes/{guid}/destinations":                  gives[v3.Destinations](200),
	"PATCH /v3/routes/{guid}/destinations":                gives[v3.Destinations](200).from(jsonOf[v3.ChangeDestinations]()),
	"POST /v3/routes/{guid}/destinations":                 gives[v3.Destinations](200).from(jsonOf[v3.ChangeDestinations]()),
	"DELETE /v3/routes/{guid}/destinations/{destination}": ends(204),
	"PATCH /v3/routes/{guid}/destinations/{destination}":  gives[v3.Destination](200).from(jsonOf[v3.UpdateDestination]()),

	"GET /v3/spaces":                                pageOf[v3.Space]("names", "guids", "organization_guids", paramSelector, "include"),
	"POST /v3/spaces":                               gives[v3.Space](201).from(jsonOf[v3.CreateSpace]()),
	"DELETE /v3/spaces/{guid}":                      begins(),
	"GET /v3/spaces/{guid}":                         gives[v3.Space](200).ask("include"),
	"PATCH /v3/spaces/{guid}":                       gives[v3.Space](200).from(jsonOf[v3.UpdateSpace]()),
	"POST /v3/spaces/{guid}/actions/apply_manifest": begins().from(manifestBody),
	"GET /v3/spaces/{guid}/features":                gives[v3.SpaceFeatures](200),
	"GET /v3/spaces/{guid}/features/{name}":         gives[v3.SpaceFeature](200),
	"PATCH /v3/spaces/{guid}/features/{name}":       gives[v3.SpaceFeature](200).from(jsonOf[v3.UpdateSpaceFeature]()),
	"POST /v3/spaces/{guid}/manifest_diff":          gives[v3.ManifestDiff](202).from(manifestBody),
	"DELETE /v3/spaces/{guid}/routes":               begins().ask("unmapped"),
	"GET /v3/spaces/{guid}/users":                   pageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", paramSelector).by(byTime...),

	"GET /v3/users":           pageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", paramSelector).by(byTime...),
	"POST /v3/users":          gives[v3.User](201).from(jsonOf[v3.CreateUser]()),
	"DELETE /v3/users/{guid}": begins(),
	"GET /v3/users/{guid}":    gives[v3.User](200),
	"PATCH /v3/users/{guid}":  gives[v3.User](200).from(jsonOf[v3.UpdateUser]()),
}
