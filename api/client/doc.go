// Package client sends requests to a dew daemon, over its socket or its listener. It uses
// the types of package v3.
//
//	client.go     a client and its calls by subject          transport.go  one request, errors, warnings, lists
//	tokens.go     tokens of requests                         jobs.go       jobs that continue after a response
//	apps.go  deployments.go                                  Apps
//	processes.go  tasks.go                                   Processes
//	packages.go  buildpacks.go                               Bits
//	routes.go  domains.go                                    Routes
//	services.go  market.go                                   Services, Market
//	orgs.go  users.go  kinds.go                              Orgs, Users, and kinds of resources with the same calls
//	logs.go       Logs: the newest lines, and a stream that resumes
//	daemon.go     Daemon: dew's own calls, over the socket only
//
// These are all the calls it makes:
//
//	GET    /   /v3/jobs/:guid   /v3/domains   /v3/buildpacks   /v3/stacks
//	GET    /v3/organizations ?names= ?order_by=name            POST   /v3/organizations
//	PATCH  /v3/organizations/:guid                             DELETE /v3/organizations/:guid (Location: a job)
//	GET    /v3/spaces ?names= ?guids= ?organization_guids= ?order_by=name
//	POST   /v3/spaces                                          PATCH, DELETE /v3/spaces/:guid (Location: a job)
//	GET    /v3/roles ?types= ?user_guids= ?organization_guids= ?space_guids=
//	POST   /v3/roles                                           DELETE /v3/roles/:guid (Location: a job)
//	GET    /v3/users ?usernames= ?guids=                       DELETE /v3/users/:guid (Location: a job)
//	POST   /uaa/oauth/token                                    DELETE /uaa/oauth/token/revoke/:jti
//	POST   /uaa/Users                                          DELETE /uaa/Users/:guid   PUT /uaa/Users/:guid/password
//	GET    /uaa/oauth/clients ?startIndex= ?count=             POST   /uaa/oauth/clients   DELETE /uaa/oauth/clients/:id
//	GET    /v3/apps ?names= ?space_guids= ?order_by=name       POST   /v3/apps
//	PATCH  /v3/apps/:guid                                      DELETE /v3/apps/:guid (Location: a job)
//	POST   /v3/apps/:guid/actions/start|stop|restart
//	GET    /v3/apps/:guid/env                                  PATCH  /v3/apps/:guid/environment_variables
//	GET    /v3/apps/:guid/droplets/current                     PATCH  /v3/apps/:guid/relationships/current_droplet
//	GET    /v3/apps/:guid/processes                            POST   /v3/apps/:guid/processes/:type/actions/scale
//	DELETE /v3/apps/:guid/processes/:type/instances/:index
//	GET    /v3/apps/:guid/packages|builds ?order_by=-created_at ?states= ?per_page= ?page=
//	GET    /v3/apps/:guid/routes   /v3/routes ?space_guids=    DELETE /v3/routes/:guid (Location: a job, or none)
//	GET    /v3/apps/:guid/manifest   /v3/droplets ?app_guids= ?order_by=-created_at
//	GET    /v3/processes ?space_guids= ?embed=   /v3/processes/:guid   /v3/processes/:guid/stats|sidecars
//	POST   /v3/resource_matches   /v3/packages   /v3/packages/:guid/upload   /v3/builds
//	GET    /v3/packages/:guid   /v3/builds/:guid
//	POST   /v3/spaces/:guid/manifest_diff   /v3/spaces/:guid/actions/apply_manifest (Location: a job)
//	GET    /v3/audit_events ?target_guids= ?order_by=-created_at ?per_page=
//	GET    /api/v1/read/:app ?descending=true ?envelope_types=LOG ?limit= ?start_time= ?end_time=
//	GET    /stream/v1/apps/:guid ?newest=   (Last-Event-ID)
//	GET    /dew/v1/status   /dew/v1/credentials   /dew/v1/apps/:guid/crashes
//	POST   /dew/v1/processes/:guid/kill   /dew/v1/shutdown
package client
