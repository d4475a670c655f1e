package api

// goodBodies holds valid bodies for endpoints whose description does not say which
// values go together. <Noun> stands for a GUID of the test org server, NEW for a new name and
// META for labels.
var goodBodies = map[string]string{
	"POST /v3/apps": `{"name":"NEW","environment_variables":{"A":"1"},"lifecycle":{"type":"buildpack","data":{"buildpacks":[],"stack":"host"}},
		"relationships":{"space":{"data":{"guid":"<Space>"}}},"metadata":META}`,
	"PATCH /v3/apps/{guid}":                               `{"name":"NEW","lifecycle":{"type":"buildpack","data":{"buildpacks":[],"stack":"host"}},"metadata":META}`,
	"PATCH /v3/apps/{guid}/relationships/current_droplet": `{"data":{"guid":"<Droplet>"}}`,
	"POST /v3/apps/{guid}/sidecars":                       `{"name":"NEW","command":"x","process_types":["web"],"memory_in_mb":"1"}`,
	"POST /v3/apps/{guid}/tasks":                          `{"name":"NEW","command":"x","memory_in_mb":64,"disk_in_mb":64,"log_rate_limit_in_bytes_per_second":-1,"droplet_guid":"<Droplet>","user":"vcap","template":{"process":{"guid":"<Process>"}},"metadata":META}`,
	"PATCH /v3/sidecars/{guid}":                           `{"name":"NEW","command":"x","process_types":["web"],"memory_in_mb":1}`,

	"PATCH /v3/processes/{guid}":                          goodProcess,
	"PATCH /v3/apps/{guid}/processes/{type}":              goodProcess,
	"POST /v3/processes/{guid}/actions/scale":             goodScale,
	"POST /v3/apps/{guid}/processes/{type}/actions/scale": goodScale,

	"POST /v3/deployments": `{"droplet":{"guid":"<Droplet>"},"strategy":"canary","options":{"max_in_flight":1,"web_instances":"2","memory_in_mb":1024,"disk_in_mb":null,
		"canary":{"steps":[{"instance_weight":50}]}},"relationships":{"app":{"data":{"guid":"<App>"}}},"metadata":META}`,
	"POST /v3/builds":   `{"package":{"guid":"<Built>"},"lifecycle":{"type":"buildpack","data":{"buildpacks":[],"stack":"host"}},"metadata":META}`,
	"POST /v3/packages": `{"type":"bits","data":{},"relationships":{"app":{"data":{"guid":"<App>"}}},"metadata":META}`,
	"POST /v3/droplets": `{"process_types":{"web":"x"},"relationships":{"app":{"data":{"guid":"<App>"}}}}`,

	"POST /v3/buildpacks":                          `{"name":"NEW","stack":null,"position":1,"enabled":true,"locked":false,"lifecycle":"buildpack","metadata":META}`,
	"PATCH /v3/buildpacks/{guid}":                  `{"name":"NEW","stack":null,"position":1,"enabled":true,"locked":false,"metadata":META}`,
	"POST /networking/v1/external/policies":        goodPolicies,
	"POST /networking/v1/external/policies/delete": goodPolicies,

	"POST /dew/v1/stacks": `{"name":"NEW","debian":{"include":["curl"]}}`,

	"POST /v3/domains": `{"name":"NEW.example.com","internal":false,"relationships":{"organization":{"data":{"guid":"<Organization>"}}},"metadata":META}`,
	"POST /v3/domains/{guid}/relationships/shared_organizations": `{"data":[{"guid":"<Elsewhere>"}]}`,
	"POST /v3/roles": `{"type":"organization_auditor","relationships":{"user":{"data":{"username":"nobody"}},"organization":{"data":{"guid":"<Organization>"}}}}`,
	"POST /v3/users": `{"username":"NEW","origin":"elsewhere","metadata":META}`,

	"POST /v3/routes":                                    `{"host":"NEW","path":"/x","options":{"loadbalancing":"round-robin"},"relationships":{"domain":{"data":{"guid":"</v3/domains/>"}},"space":{"data":{"guid":"<Space>"}}},"metadata":META}`,
	"PATCH /v3/routes/{guid}":                            `{"options":{"loadbalancing":"round-robin"},"metadata":META}`,
	"POST /v3/routes/{guid}/destinations":                goodDestinations,
	"PATCH /v3/routes/{guid}/destinations":               goodDestinations,
	"PATCH /v3/routes/{guid}/destinations/{destination}": `{"protocol":"http1"}`,

	"POST /v3/organization_quotas":                                    `{"name":"NEW",` + goodLimits + `,"domains":{"total_domains":null},"relationships":{"organizations":{"data":[]}}}`,
	"PATCH /v3/organization_quotas/{guid}":                            `{"name":"NEW",` + goodLimits + `,"domains":{"total_domains":64}}`,
	"POST /v3/organization_quotas/{guid}/relationships/organizations": `{"data":[{"guid":"<Organization>"}]}`,
	"POST /v3/space_quotas":                                           `{"name":"NEW",` + goodLimits + `,"relationships":{"organization":{"data":{"guid":"<Organization>"}},"spaces":{"data":[]}}}`,
	"PATCH /v3/space_quotas/{guid}":                                   `{"name":"NEW",` + goodLimits + `}`,
	"POST /v3/space_quotas/{guid}/relationships/spaces":               goodSpaces,

	"POST /v3/security_groups": `{"name":"NEW","globally_enabled":{"running":true,"staging":false},"rules":[` + goodRule + `],
		"relationships":{"running_spaces":` + goodSpaces + `,"staging_spaces":{"data":[]}}}`,
	"PATCH /v3/security_groups/{guid}":                             `{"name":"NEW","globally_enabled":{"running":true,"staging":false},"rules":[` + goodRule + `]}`,
	"POST /v3/security_groups/{guid}/relationships/running_spaces": goodSpaces,
	"POST /v3/security_groups/{guid}/relationships/staging_spaces": goodSpaces,

	"POST /v3/isolation_segments/{guid}/relationships/organizations":         `{"data":[{"guid":"<Organization>"}]}`,
	"PATCH /v3/spaces/{guid}/relationships/isolation_segment":                `{"data":null}`,
	"PATCH /v3/organizations/{guid}/relationships/default_isolation_segment": `{"data":null}`,
	"PATCH /v3/environment_variable_groups/{name}":                           `{"var":{"A":"1","B":null}}`,

	"POST /v3/service_brokers": `{"name":"NEW","url":"https://x.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}},
		"relationships":{"space":{"data":{"guid":"<Space>"}}},"metadata":META}`,
	"PATCH /v3/service_brokers/{guid}":                              `{"metadata":META}`,
	"POST /v3/service_plans/{guid}/visibility":                      `{"type":"organization","organizations":[{"guid":"<Organization>"}]}`,
	"PATCH /v3/service_plans/{guid}/visibility":                     `{"type":"organization","organizations":[{"guid":"<Organization>"}]}`,
	"POST /v3/service_instances":                                    `{"type":"user-provided","name":"NEW","tags":["a"],"credentials":{"a":"b"},"syslog_drain_url":"syslog://x.example.com","route_service_url":"https://x.example.com","relationships":{"space":{"data":{"guid":"<Space>"}}},"metadata":META}`,
	"PATCH /v3/service_instances/{guid}":                            `{"name":"NEW","tags":["a"],"metadata":META}`,
	"POST /v3/service_credential_bindings":                          `{"type":"key","name":"NEW","parameters":{"a":1},"relationships":{"service_instance":{"data":{"guid":"<Service instance>"}}},"metadata":META}`,
	"PATCH /v3/service_offerings/{guid}":                            `{"metadata":META}`,
	"PATCH /v3/service_plans/{guid}":                                `{"metadata":META}`,
	"POST /v3/service_instances/{guid}/relationships/shared_spaces": goodSpaces,
	"POST /v3/routes/{guid}/relationships/shared_spaces":            goodSpaces,
	"PATCH /v3/routes/{guid}/relationships/space":                   `{"data":{"guid":"<Space>"}}`,
	"PATCH /v3/stacks/{guid}":                                       `{"state":"ACTIVE","state_reason":"x","metadata":META}`,
}

const (
	goodProcess = `{"command":"x","health_check":{"type":"http","data":{"endpoint":"/","interval":3,"invocation_timeout":"3","timeout":60}},
		"readiness_health_check":{"type":"http","data":{"endpoint":"/","interval":3,"invocation_timeout":3}},"metadata":META}`
	goodScale        = `{"instances":"2","memory_in_mb":1024,"disk_in_mb":1024,"log_rate_limit_in_bytes_per_second":-1}`
	goodPolicies     = `{"policies":[{"source":{"id":"<App>"},"destination":{"id":"<App>","protocol":"tcp","ports":{"start":8080,"end":8081}}}]}`
	goodDestinations = `{"destinations":[{"app":{"guid":"<App>","process":{"type":"web"}},"port":8080,"protocol":"http1"}]}`
	goodSpaces       = `{"data":[{"guid":"<Space>"}]}`
	goodRule         = `{"protocol":"tcp","destination":"10.0.0.0/8","ports":"80,443","log":true,"description":"x"}`
	goodLimits       = `"apps":{"total_memory_in_mb":10240,"per_process_memory_in_mb":2048,"total_instances":100,"log_rate_limit_in_bytes_per_second":null,"per_app_tasks":50},
		"services":{"paid_services_allowed":true,"total_service_instances":100,"total_service_keys":null},"routes":{"total_routes":1000,"total_reserved_ports":0}`
)

// neverGood lists the endpoints that accept no body in this test, and the reason.
var neverGood = map[string]string{
	"PUT /dew/v1/apps/{guid}/crash-mails":     "nobody sends mails",
	"POST /dew/v1/mails/retry":                "the test server has no mail queue",
	"POST /dew/v1/mail-templates/preview":     "the test server has no mail templates",
	"POST /v3/stacks":                         "a stack needs files",
	"POST /v3/processes/{guid}/actions/scale": "its app is deployed by then",

	"PATCH /v3/routes/{guid}/destinations/{destination}":            "the destination has a new guid every time",
	"POST /v3/service_instances/{guid}/relationships/shared_spaces": "it is not shared with its own space",
	"POST /v3/routes/{guid}/relationships/shared_spaces":            "it is not shared with its own space",
	"POST /v3/service_route_bindings":                               "the route is bound already",
}
