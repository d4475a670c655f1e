package api

import (
	"slices"
	"strings"
	"testing"
)

// userNames is a list of users of the org server, with or without roles in its org.
type userNames []string

func (p userNames) and(more ...string) userNames { return slices.Concat(p, more) }

// The users.
const (
	admin        = "admin"
	adminReader  = "admin_read_only"
	allAuditor   = "global_auditor"
	orgManager   = "organization_manager"
	orgAuditor   = "organization_auditor"
	orgBilling   = "organization_billing_manager"
	orgUser      = "organization_user"
	developer    = "space_developer"
	spaceManager = "space_manager"
	spaceAuditor = "space_auditor"
	supporter    = "space_supporter"
	stranger     = "stranger" // has every role in another org
	nobody       = "nobody"   // has no role
)

var (
	overseers = userNames{admin, adminReader, allAuditor}
	members   = userNames{developer, spaceManager, spaceAuditor, supporter} // members of the space
	seeSpace  = overseers.and(members...).and(orgManager)
	seeRoutes = seeSpace.and(orgAuditor)
	seeOrg    = seeRoutes.and(orgBilling, orgUser)
	anybody   = seeOrg.and(stranger, nobody)
)

// rule says who can call some endpoints. Other users who can see the resource get 403,
// and the rest get 404.
type rule struct {
	may, see userNames
	unseen   int    // status for the rest (zero: 404)
	at       string // the patterns, one on each line
}

// rules lists the permissions of each role on Cloud Foundry and on dew's own endpoints.
// It is written by hand, so that the table of endpoints is checked against it.
var rules = []rule{
	// These need no role. Lists contain only what the caller can see.
	{may: anybody, at: `
		GET /{$}
		GET /healthz
		GET /openapi.json
		GET /api/v1/info
		GET /api/v1/meta
		GET /v3
		GET /v3/info
		GET /v3/organizations
		GET /v3/spaces
		GET /v3/roles
		GET /v3/users
		GET /v3/domains
		GET /v3/routes
		GET /v3/audit_events
		GET /networking/v1/external/policies
		GET /v3/apps
		GET /v3/processes
		GET /v3/tasks
		GET /v3/deployments
		GET /v3/packages
		GET /v3/builds
		GET /v3/droplets
		GET /v3/buildpacks
		GET /v3/buildpacks/{guid}
		GET /v3/stacks
		GET /v3/stacks/{guid}
		GET /v3/stacks/{guid}/apps
		GET /v3/feature_flags
		GET /v3/feature_flags/{name}
		GET /v3/environment_variable_groups/{name}
		GET /v3/organization_quotas
		GET /v3/organization_quotas/{guid}
		GET /v3/space_quotas
		GET /v3/security_groups
		GET /v3/security_groups/{guid}
		GET /v3/isolation_segments
		GET /v3/app_usage_events
		GET /v3/service_usage_events
		GET /v3/service_brokers
		GET /v3/service_offerings
		GET /v3/service_plans
		GET /v3/service_instances
		GET /v3/service_credential_bindings
		GET /v3/service_route_bindings
		POST /v3/resource_matches
		GET /routing/v1/router_groups
		GET /routing/v1/router_groups/{guid}
		GET /dew/v1/live
		GET /dew/v1/live/stream
		GET /dew/v1/stacks
		GET /dew/v1/stacks/{guid}
		POST /dew/v1/console/link
		GET /dew/v1/console/session
		GET /dew/v1/console/sessions
		DELETE /dew/v1/console/sessions/{id}
		POST /dew/v1/ssh-code`},

	// Resources of a space.
	{may: seeSpace, at: `
		GET /v3/spaces/{guid}
		GET /v3/spaces/{guid}/users
		GET /v3/spaces/{guid}/features
		GET /v3/spaces/{guid}/features/{name}
		GET /v3/spaces/{guid}/usage_summary
		GET /v3/spaces/{guid}/running_security_groups
		GET /v3/spaces/{guid}/staging_security_groups
		GET /v3/spaces/{guid}/relationships/isolation_segment
		GET /v3/roles/{guid}
		GET /v3/apps/{guid}
		GET /v3/apps/{guid}/relationships/current_droplet
		GET /v3/apps/{guid}/droplets/current
		GET /v3/apps/{guid}/droplets
		GET /v3/apps/{guid}/permissions
		GET /v3/apps/{guid}/processes
		GET /v3/apps/{guid}/processes/{type}
		GET /v3/apps/{guid}/processes/{type}/stats
		GET /v3/apps/{guid}/processes/{type}/sidecars
		GET /v3/apps/{guid}/processes/{type}/process_instances
		GET /v3/apps/{guid}/routes
		GET /v3/apps/{guid}/packages
		GET /v3/apps/{guid}/builds
		GET /v3/apps/{guid}/sidecars
		GET /v3/apps/{guid}/tasks
		GET /v3/apps/{guid}/ssh_enabled
		GET /v3/apps/{guid}/features
		GET /v3/apps/{guid}/features/{name}
		GET /v3/apps/{guid}/revisions
		GET /v3/apps/{guid}/revisions/deployed
		GET /v3/processes/{guid}
		GET /v3/processes/{guid}/stats
		GET /v3/processes/{guid}/process_instances
		GET /v3/processes/{guid}/sidecars
		GET /v3/sidecars/{guid}
		GET /v3/tasks/{guid}
		GET /v3/deployments/{guid}
		GET /v3/revisions/{guid}
		GET /v3/packages/{guid}
		GET /v3/packages/{guid}/droplets
		GET /v3/builds/{guid}
		GET /v3/droplets/{guid}
		GET /v3/service_instances/{guid}
		GET /v3/service_instances/{guid}/permissions
		GET /v2/service_instances/{guid}/permissions
		GET /v3/service_instances/{guid}/parameters
		GET /v3/service_instances/{guid}/relationships/shared_spaces
		GET /v3/service_instances/{guid}/relationships/shared_spaces/usage_summary
		GET /v3/service_credential_bindings/{guid}
		GET /v3/service_credential_bindings/{guid}/parameters
		GET /v3/service_route_bindings/{guid}
		GET /v3/service_offerings/{guid}
		GET /v3/service_plans/{guid}
		GET /v3/service_plans/{guid}/visibility
		GET /v3/space_quotas/{guid}
		GET /api/v1/read/{guid}
		GET /stream/v1/apps/{guid}
		GET /stream/v1/apps/{guid}/verify
		GET /dew/v1/apps/{guid}/bindings
		GET /dew/v1/apps/{guid}/crashes
		GET /dew/v1/apps/{guid}/usage
		GET /v3/apps/{guid}/crashes
		GET /dew/v1/apps/{guid}/crash-mails
		GET /dew/v1/service_instances/{guid}/snapshots`},
	{may: userNames{admin, adminReader, developer, supporter}, see: seeSpace, at: `
		GET /v3/apps/{guid}/env
		GET /v3/apps/{guid}/environment_variables`},
	{may: userNames{admin, adminReader, developer}, see: seeSpace, at: `
		GET /v3/apps/{guid}/manifest
		GET /v3/packages/{guid}/download
		GET /v3/revisions/{guid}/environment_variables
		GET /v3/service_instances/{guid}/credentials
		GET /v3/service_route_bindings/{guid}/parameters
		GET /stream/v1/services/{guid}`},
	// Others must name apps that they can see.
	{may: userNames{admin}, at: `
		GET /v2/read`},
	// A query without an app is refused in the same way for all.
	{may: anybody, at: `
		GET /api/v1/query
		GET /api/v1/query_range`},
	{may: userNames{admin, adminReader, developer}, at: `
		GET /v3/service_credential_bindings/{guid}/details`},
	{may: overseers.and(orgManager, developer, spaceManager, spaceAuditor), see: seeSpace, at: `
		GET /v3/droplets/{guid}/download`},
	{may: overseers.and(developer, supporter), at: `
		GET /v3/service_brokers/{guid}`},
	{may: overseers.and(orgAuditor, developer, spaceAuditor, supporter), at: `
		GET /v3/audit_events/{guid}`},
	{may: userNames{admin, developer, supporter}, see: seeSpace, at: `
		POST /v3/apps/{guid}/actions/start
		POST /v3/apps/{guid}/actions/stop
		POST /v3/apps/{guid}/actions/restart
		POST /v3/apps/{guid}/actions/clear_buildpack_cache
		PATCH /v3/apps/{guid}/environment_variables
		PATCH /v3/apps/{guid}/relationships/current_droplet
		PATCH /v3/apps/{guid}/processes/{type}
		POST /v3/apps/{guid}/processes/{type}/actions/scale
		DELETE /v3/apps/{guid}/processes/{type}/instances/{index}
		PATCH /v3/processes/{guid}
		POST /v3/processes/{guid}/actions/scale
		DELETE /v3/processes/{guid}/instances/{index}
		POST /v3/tasks/{guid}/actions/cancel
		PUT /v3/tasks/{guid}/cancel
		DELETE /v3/spaces/{guid}/routes
		DELETE /v3/service_credential_bindings/{guid}
		DELETE /v3/service_route_bindings/{guid}`},
	{may: userNames{admin, developer, supporter}, at: `
		POST /v3/deployments/{guid}/actions/cancel
		POST /v3/deployments/{guid}/actions/continue`},
	{may: userNames{admin, developer}, see: seeSpace, at: `
		POST /v3/spaces/{guid}/manifest_diff
		POST /v3/spaces/{guid}/actions/apply_manifest
		PATCH /v3/apps/{guid}
		DELETE /v3/apps/{guid}
		PATCH /v3/apps/{guid}/features/{name}
		POST /v3/apps/{guid}/sidecars
		POST /v3/apps/{guid}/tasks
		PATCH /v3/sidecars/{guid}
		DELETE /v3/sidecars/{guid}
		PATCH /v3/tasks/{guid}
		PATCH /v3/deployments/{guid}
		PATCH /v3/revisions/{guid}
		PATCH /v3/packages/{guid}
		POST /v3/packages/{guid}/upload
		DELETE /v3/packages/{guid}
		PATCH /v3/builds/{guid}
		PATCH /v3/droplets/{guid}
		POST /v3/droplets/{guid}/upload
		DELETE /v3/droplets/{guid}
		PATCH /v3/service_instances/{guid}
		DELETE /v3/service_instances/{guid}
		POST /v3/service_instances/{guid}/relationships/shared_spaces
		DELETE /v3/service_instances/{guid}/relationships/shared_spaces/{space}
		PATCH /v3/service_credential_bindings/{guid}
		PATCH /v3/service_route_bindings/{guid}
		PATCH /v3/service_brokers/{guid}
		DELETE /v3/service_brokers/{guid}
		PATCH /v3/service_offerings/{guid}
		DELETE /v3/service_offerings/{guid}
		PATCH /v3/service_plans/{guid}
		DELETE /v3/service_plans/{guid}
		POST /v3/service_plans/{guid}/visibility
		PATCH /v3/service_plans/{guid}/visibility
		DELETE /v3/service_plans/{guid}/visibility/{org}
		PUT /dew/v1/apps/{guid}/crash-mails
		GET /dew/v1/apps/{guid}/terminal
		POST /dew/v1/spaces/{guid}/buildpacks
		POST /dew/v1/processes/{guid}/kill
		POST /dew/v1/service_instances/{guid}/snapshots
		POST /dew/v1/service_instances/{guid}/snapshots/{snapshot}/restore
		DELETE /dew/v1/service_instances/{guid}/snapshots/{snapshot}`},
	{may: userNames{admin, orgManager, spaceManager}, see: seeSpace, at: `
		PATCH /v3/spaces/{guid}
		PATCH /v3/spaces/{guid}/features/{name}
		DELETE /v3/roles/{guid}`},
	{may: userNames{admin, orgManager}, see: seeSpace, at: `
		DELETE /v3/spaces/{guid}
		PATCH /v3/spaces/{guid}/relationships/isolation_segment
		PATCH /v3/space_quotas/{guid}
		DELETE /v3/space_quotas/{guid}
		POST /v3/space_quotas/{guid}/relationships/spaces
		DELETE /v3/space_quotas/{guid}/relationships/spaces/{space}`},

	// Auditors of the org can also see routes and private domains.
	{may: seeRoutes, at: `
		GET /v3/routes/{guid}
		GET /v3/routes/{guid}/destinations
		GET /v3/routes/{guid}/relationships/shared_spaces
		GET /v3/domains/{guid}
		GET /v3/domains/{guid}/route_reservations`},
	{may: userNames{admin, developer, supporter}, see: seeRoutes, at: `
		PATCH /v3/routes/{guid}
		DELETE /v3/routes/{guid}
		POST /v3/routes/{guid}/destinations
		PATCH /v3/routes/{guid}/destinations
		PATCH /v3/routes/{guid}/destinations/{destination}
		DELETE /v3/routes/{guid}/destinations/{destination}
		POST /v3/routes/{guid}/relationships/shared_spaces
		DELETE /v3/routes/{guid}/relationships/shared_spaces/{space}`},
	{may: userNames{admin, developer}, see: seeRoutes, at: `
		PATCH /v3/routes/{guid}/relationships/space`},
	{may: userNames{admin, orgManager}, see: seeRoutes, at: `
		PATCH /v3/domains/{guid}
		DELETE /v3/domains/{guid}
		POST /v3/domains/{guid}/relationships/shared_organizations
		DELETE /v3/domains/{guid}/relationships/shared_organizations/{org}`},

	// The org.
	{may: seeOrg, at: `
		GET /v3/organizations/{guid}
		GET /v3/organizations/{guid}/domains
		GET /v3/organizations/{guid}/domains/default
		GET /v3/organizations/{guid}/users
		GET /v3/organizations/{guid}/usage_summary
		GET /v3/organizations/{guid}/relationships/quota
		GET /v3/organizations/{guid}/relationships/default_isolation_segment
		GET /v3/users/{guid}
		GET /v3/isolation_segments/{guid}
		GET /v3/isolation_segments/{guid}/organizations
		GET /v3/isolation_segments/{guid}/relationships/organizations
		GET /v3/isolation_segments/{guid}/relationships/spaces`},
	{may: userNames{admin, orgManager}, see: seeOrg, at: `
		PATCH /v3/organizations/{guid}
		PATCH /v3/organizations/{guid}/relationships/default_isolation_segment`},
	{may: userNames{admin}, see: seeOrg, at: `
		DELETE /v3/organizations/{guid}
		PATCH /v3/users/{guid}
		DELETE /v3/users/{guid}`},

	// The body names the org or space; users who cannot see it get 422.
	{may: userNames{admin, developer}, see: seeSpace, unseen: 422, at: `
		POST /v3/apps
		POST /v3/packages
		POST /v3/droplets
		POST /v3/service_instances
		POST /v3/service_credential_bindings
		POST /v3/service_brokers`},
	{may: userNames{admin, developer, supporter}, see: seeSpace, unseen: 422, at: `
		POST /v3/routes
		POST /v3/service_route_bindings`},
	{may: userNames{admin, developer, supporter}, unseen: 422, at: `
		POST /v3/builds
		POST /v3/deployments`},
	{may: userNames{admin, orgManager}, see: seeOrg, unseen: 422, at: `
		POST /v3/spaces
		POST /v3/roles
		POST /v3/domains
		POST /v3/space_quotas`},
	{may: userNames{admin, orgManager, spaceManager}, see: seeSpace, unseen: 422, at: `
		POST /v3/security_groups/{guid}/relationships/running_spaces
		POST /v3/security_groups/{guid}/relationships/staging_spaces
		DELETE /v3/security_groups/{guid}/relationships/running_spaces/{space}
		DELETE /v3/security_groups/{guid}/relationships/staging_spaces/{space}`},

	// Resources of the whole platform.
	{may: overseers, at: `
		GET /v3/info/usage_summary
		GET /v3/jobs/{guid}
		GET /v3/app_usage_events/{guid}
		GET /v3/service_usage_events/{guid}`},
	{may: overseers, see: anybody, at: `
		GET /metrics`},

	// The policy server does not say whether an app exists.
	{may: userNames{admin, developer}, see: anybody, at: `
		POST /networking/v1/external/policies
		POST /networking/v1/external/policies/delete`},
	{may: userNames{admin}, see: anybody, at: `
		POST /v3/organizations
		POST /v3/users
		POST /v3/buildpacks
		PATCH /v3/buildpacks/{guid}
		DELETE /v3/buildpacks/{guid}
		POST /v3/buildpacks/{guid}/upload
		POST /v3/admin/actions/clear_buildpack_cache
		POST /v3/stacks
		PATCH /v3/stacks/{guid}
		DELETE /v3/stacks/{guid}
		PATCH /v3/feature_flags/{name}
		PATCH /v3/environment_variable_groups/{name}
		POST /v3/organization_quotas
		PATCH /v3/organization_quotas/{guid}
		DELETE /v3/organization_quotas/{guid}
		POST /v3/organization_quotas/{guid}/relationships/organizations
		POST /v3/security_groups
		PATCH /v3/security_groups/{guid}
		DELETE /v3/security_groups/{guid}
		POST /v3/isolation_segments
		PATCH /v3/isolation_segments/{guid}
		DELETE /v3/isolation_segments/{guid}
		POST /v3/isolation_segments/{guid}/relationships/organizations
		DELETE /v3/isolation_segments/{guid}/relationships/organizations/{org}
		POST /v3/app_usage_events/actions/destructively_purge_all_and_reseed
		POST /v3/service_usage_events/actions/destructively_purge_all_and_reseed
		GET /dew/v1/status
		GET /dew/v1/doctor
		POST /dew/v1/shutdown
		POST /dew/v1/stacks
		POST /dew/v1/stacks/upload
		DELETE /dew/v1/stacks/{guid}
		GET /dew/v1/inbox
		GET /dew/v1/inbox/wait
		GET /dew/v1/inbox/{id}
		POST /dew/v1/inbox/link
		GET /dew/v1/mails
		POST /dew/v1/mails/retry
		POST /dew/v1/mail-templates/preview`},

	// Its URL is a secret, and this one is wrong.
	{at: secretDoor},

	// These do not exist for requests with a token.
	{at: `
		/
		GET /dew/v1/credentials
		POST /dew/v1/token`},
}

// variant is a request whose permissions do not follow from its pattern alone. In its
// path and body, <Noun> stands for a GUID of the org server.
type variant struct {
	rule
	method, path, body string
}

// name returns a key that differs from every pattern.
func (v variant) name() string { return v.method + " " + v.path + " " + v.body }

var variants = []variant{
	// Supporters can change the revisions feature, but not SSH.
	{rule{may: userNames{admin, developer, supporter}, see: seeSpace}, "PATCH", "/v3/apps/<App>/features/revisions", `{"enabled":true}`},

	// Supporters can bind apps, but cannot create keys.
	{
		rule{may: userNames{admin, developer, supporter}, see: seeSpace, unseen: 422},
		"POST", "/v3/service_credential_bindings",
		`{"type":"app","relationships":{"app":{"data":{"guid":"<App>"}},"service_instance":{"data":{"guid":"<Provided>"}}}}`,
	},
	{rule{may: userNames{admin, developer}, see: seeSpace}, "DELETE", "/v3/service_credential_bindings/<Key>", ``},

	// Managers of the space can also assign roles in it.
	{
		rule{may: userNames{admin, orgManager, spaceManager}, see: seeSpace, unseen: 422},
		"POST", "/v3/roles",
		`{"type":"space_auditor","relationships":{"user":{"data":{"guid":"</v3/users/>"}},"space":{"data":{"guid":"<Space>"}}}}`,
	},

	// Only administrators can change shared resources, and suspend an org.
	{rule{may: userNames{admin}, see: seeOrg}, "PATCH", "/v3/organizations/<Organization>", `{"suspended":true}`},
	{rule{may: userNames{admin}, see: anybody}, "POST", "/v3/domains", `{"name":"NEW.example.org"}`},
	{rule{may: anybody}, "GET", "/v3/domains/<Shared domain>", ``},
	{rule{may: userNames{admin}, see: anybody}, "PATCH", "/v3/domains/<Shared domain>", `{"metadata":META}`},
	{
		rule{may: userNames{admin}, see: anybody},
		"POST", "/v3/service_brokers",
		`{"name":"NEW","url":"https://x.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}}}`,
	},
	{rule{may: overseers}, "GET", "/v3/service_brokers/<Global broker>", ``},
	{rule{may: userNames{admin}, see: overseers}, "PATCH", "/v3/service_brokers/<Global broker>", `{"metadata":META}`},

	// A resource that is not assigned to a space is visible to those who can assign it.
	{rule{may: overseers.and(orgManager)}, "GET", "/v3/space_quotas/<Other quota>", ``},
	{rule{may: userNames{admin, orgManager}, see: overseers}, "PATCH", "/v3/space_quotas/<Other quota>", `{"name":"NEW"}`},
	{rule{may: overseers}, "GET", "/v3/security_groups/<Other group>", ``},
	{rule{may: userNames{admin}, see: overseers}, "PATCH", "/v3/security_groups/<Other group>", `{"name":"NEW"}`},
	{rule{may: userNames{admin}, see: overseers}, "DELETE", "/v3/security_groups/<Other group>", ``},

	// Users of other orgs are not visible, but all users can see themselves.
	{rule{may: overseers.and(stranger)}, "GET", "/v3/users/<Stranger>", ``},
	{rule{may: userNames{admin}, see: overseers.and(stranger)}, "PATCH", "/v3/users/<Stranger>", `{"metadata":META}`},
	{rule{may: userNames{admin}, see: overseers.and(stranger)}, "DELETE", "/v3/users/<Stranger>", ``},

	// A resource that does not exist gets 404 for all users.
	{rule{}, "PATCH", "/v3/stacks/none", `{"metadata":META}`},
	{rule{}, "DELETE", "/v3/stacks/none", ``},
	{rule{}, "PATCH", "/v3/buildpacks/none", `{"name":"NEW"}`},
	{rule{}, "DELETE", "/v3/buildpacks/none", ``},
}

// These endpoints need no token. The marketplace then lists only public plans.
var (
	openDoors  = []string{"GET /{$}", "GET /healthz", "GET /openapi.json", "GET /api/v1/info", secretDoor}
	openMarket = []string{"GET /v3/service_offerings", "GET /v3/service_offerings/{guid}", "GET /v3/service_plans", "GET /v3/service_plans/{guid}"}
)

// secretDoor needs no token, and answers only to those who know its secret.
const secretDoor = "GET /dew/v1/downloads/{secret}"

// unlisted lists users who can see a resource that its list does not contain. The
// marketplace lists available plans, but they also see plans of existing service
// instances.
var unlisted = map[string]bool{
	"GET /v3/service_offerings/{guid} " + orgManager: true,
	"GET /v3/service_plans/{guid} " + orgManager:     true,
}

// answerTo returns the status for a user without permission, or zero if the user has
// permission.
func (r rule) answerTo(who string) int {
	switch {
	case slices.Contains(r.may, who):
		return 0
	case slices.Contains(r.see, who):
		return 403
	case r.unseen != 0:
		return r.unseen
	}
	return 404
}

// harmless reports whether requests for a pattern change nothing in the org server.
func (r rule) harmless(pattern string) bool {
	return strings.HasPrefix(pattern, "GET ") || r.answerTo(nobody) == 0
}

// rulesByPattern returns the rules by pattern, and checks that every endpoint has exactly one.
func rulesByPattern(t *testing.T) map[string]rule {
	t.Helper()
	out := map[string]rule{}
	for _, r := range rules {
		for line := range strings.Lines(r.at) {
			pattern := strings.TrimSpace(line)
			if pattern == "" {
				continue
			}
			if _, twice := out[pattern]; twice {
				t.Errorf("%s has two rules", pattern)
			}
			if _, there := rights[pattern]; !there {
				t.Errorf("there is a rule for %s, which nobody answers", pattern)
			}
			out[pattern] = r
		}
	}
	for _, v := range variants {
		out[v.name()] = v.rule
	}
	for pattern := range rights {
		if _, ok := out[pattern]; !ok {
			t.Errorf("no rule says who may ask %s: add one", pattern)
		}
	}
	return out
}
