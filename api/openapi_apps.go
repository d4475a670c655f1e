package api

import "github.com/dewrun/dew/api/v3"

// uploadForm is how files are uploaded.
var uploadForm = bytesOf("multipart/form-data")

// appOperations are about apps.
var appOperations = map[string]operation{
	"GET /v3/apps":                                        pageOf[v3.App]("names", "guids", "space_guids", "organization_guids", "stacks", "lifecycle_type", "include", paramSelector).by("created_at", "updated_at", "name", "state"),
	"POST /v3/apps":                                       gives[v3.App](201).from(jsonOf[v3.CreateApp]()),
	"DELETE /v3/apps/{guid}":                              begins(),
	"GET /v3/apps/{guid}":                                 gives[v3.App](200).ask("include"),
	"PATCH /v3/apps/{guid}":                               gives[v3.App](200).from(jsonOf[v3.UpdateApp]()),
	"POST /v3/apps/{guid}/actions/restart":                gives[v3.App](200),
	"POST /v3/apps/{guid}/actions/start":                  gives[v3.App](200),
	"POST /v3/apps/{guid}/actions/stop":                   gives[v3.App](200),
	"GET /v3/apps/{guid}/builds":                          pageOf[v3.Build]("guids", "states", "package_guids", paramSelector).by(byTime...),
	"GET /v3/apps/{guid}/droplets":                        pageOf[v3.Droplet]("guids", "states", "current", paramSelector).by(byTime...),
	"GET /v3/apps/{guid}/droplets/current":                gives[v3.Droplet](200),
	"GET /v3/apps/{guid}/env":                             gives[v3.Env](200),
	"GET /v3/apps/{guid}/environment_variables":           gives[v3.EnvVars](200),
	"PATCH /v3/apps/{guid}/environment_variables":         gives[v3.EnvVars](200).from(jsonOf[v3.UpdateEnvVars]()),
	"GET /v3/apps/{guid}/features":                        gives[v3.AppFeatures](200),
	"GET /v3/apps/{guid}/features/{name}":                 gives[v3.AppFeature](200),
	"PATCH /v3/apps/{guid}/features/{name}":               gives[v3.AppFeature](200).from(jsonOf[v3.UpdateAppFeature]()),
	"GET /v3/apps/{guid}/manifest":                        givesBytes(manifestBody.kind),
	"GET /v3/apps/{guid}/packages":                        pageOf[v3.Package]("guids", "states", "types", paramSelector).by(byTime...),
	"GET /v3/apps/{guid}/permissions":                     gives[v3.Permissions](200),
	"GET /v3/apps/{guid}/relationships/current_droplet":   gives[v3.CurrentDroplet](200),
	"PATCH /v3/apps/{guid}/relationships/current_droplet": gives[v3.CurrentDroplet](200).from(jsonOf[v3.CurrentDroplet]()),
	"GET /v3/apps/{guid}/routes":                          pageOf[v3.Route]("space_guids", "guids", "domain_guids", "hosts", "paths", "ports", "include", paramSelector).by(byTime...),
	"GET /v3/apps/{guid}/ssh_enabled":                     gives[v3.SSHEnabled](200),
}

// processOperations are about what runs, and how it is changed.
var processOperations = map[string]operation{
	"GET /v3/apps/{guid}/processes":                             pageOf[v3.Process]("guids", "types", "embed", paramSelector).by(byTime...),
	"GET /v3/apps/{guid}/processes/{type}":                      gives[v3.Process](200),
	"PATCH /v3/apps/{guid}/processes/{type}":                    gives[v3.Process](200).from(jsonOf[v3.UpdateProcess]()),
	"POST /v3/apps/{guid}/processes/{type}/actions/scale":       gives[v3.Process](202).from(jsonOf[v3.Scale]()),
	"DELETE /v3/apps/{guid}/processes/{type}/instances/{index}": ends(204),
	"GET /v3/apps/{guid}/processes/{type}/process_instances":    pageOf[v3.ProcessInstance]().by(byTime...),
	"GET /v3/apps/{guid}/processes/{type}/sidecars":             pageOf[v3.Sidecar]("guids"),
	"GET /v3/apps/{guid}/processes/{type}/stats":                gives[v3.Stats](200),
	"GET /v3/apps/{guid}/revisions":                             pageOf[v3.Revision]("guids", "versions", "deployable", paramSelector).by(byTime...),
	"GET /v3/apps/{guid}/revisions/deployed":                    pageOf[v3.Revision]("guids").by(byTime...),
	"GET /v3/apps/{guid}/sidecars":                              pageOf[v3.Sidecar]("guids"),
	"POST /v3/apps/{guid}/sidecars":                             gives[v3.Sidecar](201).from(jsonOf[v3.CreateSidecar]()),
	"GET /v3/apps/{guid}/tasks":                                 pageOf[v3.Task]("guids", "names", "states", "sequence_ids", paramSelector),
	"POST /v3/apps/{guid}/tasks":                                gives[v3.Task](202).from(jsonOf[v3.CreateTask]()),

	"GET /v3/deployments":                          pageOf[v3.Deployment]("guids", "app_guids", "status_values", "status_reasons", "states", paramSelector).by(byTime...),
	"POST /v3/deployments":                         gives[v3.Deployment](201).from(jsonOf[v3.CreateDeployment]()),
	"GET /v3/deployments/{guid}":                   gives[v3.Deployment](200),
	"PATCH /v3/deployments/{guid}":                 gives[v3.Deployment](200).from(jsonOf[v3.UpdateMetadata]()),
	"POST /v3/deployments/{guid}/actions/cancel":   ends(200),
	"POST /v3/deployments/{guid}/actions/continue": ends(200),

	"GET /v3/processes":                             pageOf[v3.Process]("guids", "types", "app_guids", "space_guids", "organization_guids", "embed", paramSelector).by(byTime...),
	"GET /v3/processes/{guid}":                      gives[v3.Process](200),
	"PATCH /v3/processes/{guid}":                    gives[v3.Process](200).from(jsonOf[v3.UpdateProcess]()),
	"POST /v3/processes/{guid}/actions/scale":       gives[v3.Process](202).from(jsonOf[v3.Scale]()),
	"DELETE /v3/processes/{guid}/instances/{index}": ends(204),
	"GET /v3/processes/{guid}/process_instances":    pageOf[v3.ProcessInstance]().by(byTime...),
	"GET /v3/processes/{guid}/sidecars":             pageOf[v3.Sidecar]("guids"),
	"GET /v3/processes/{guid}/stats":                gives[v3.Stats](200),

	"GET /v3/revisions/{guid}":                       gives[v3.Revision](200),
	"PATCH /v3/revisions/{guid}":                     gives[v3.Revision](200).from(jsonOf[v3.UpdateMetadata]()),
	"GET /v3/revisions/{guid}/environment_variables": gives[v3.EnvVars](200),

	"DELETE /v3/sidecars/{guid}": ends(204),
	"GET /v3/sidecars/{guid}":    gives[v3.Sidecar](200),
	"PATCH /v3/sidecars/{guid}":  gives[v3.Sidecar](200).from(jsonOf[v3.UpdateSidecar]()),

	"GET /v3/tasks":                        pageOf[v3.Task]("guids", "names", "states", "app_guids", "space_guids", "organization_guids", paramSelector),
	"GET /v3/tasks/{guid}":                 gives[v3.Task](200),
	"PATCH /v3/tasks/{guid}":               gives[v3.Task](200).from(jsonOf[v3.UpdateMetadata]()),
	"POST /v3/tasks/{guid}/actions/cancel": gives[v3.Task](202),
	"PUT /v3/tasks/{guid}/cancel":          gives[v3.Task](202),
}

// bitsOperations are about what is pushed, and what is made of it.
var bitsOperations = map[string]operation{
	"POST /v3/admin/actions/clear_buildpack_cache": begins(),

	"POST /v3/apps/{guid}/actions/clear_buildpack_cache": begins(),

	"GET /v3/buildpacks":                pageOf[v3.Buildpack]("names", "guids", "stacks", "lifecycle", paramSelector).by("created_at", "updated_at", "name", "position", "lifecycle"),
	"POST /v3/buildpacks":               gives[v3.Buildpack](201).from(jsonOf[v3.CreateBuildpack]()),
	"DELETE /v3/buildpacks/{guid}":      begins(),
	"GET /v3/buildpacks/{guid}":         gives[v3.Buildpack](200),
	"PATCH /v3/buildpacks/{guid}":       gives[v3.Buildpack](200).from(jsonOf[v3.UpdateBuildpack]()),
	"POST /v3/buildpacks/{guid}/upload": begins().from(uploadForm),

	"GET /v3/builds":          pageOf[v3.Build]("guids", "states", "package_guids", "app_guids", "space_guids", "organization_guids", paramSelector).by(byTime...),
	"POST /v3/builds":         gives[v3.Build](201).from(jsonOf[v3.CreateBuild]()),
	"GET /v3/builds/{guid}":   gives[v3.Build](200),
	"PATCH /v3/builds/{guid}": gives[v3.Build](200).from(jsonOf[v3.UpdateMetadata]()),

	"GET /v3/droplets":                 pageOf[v3.Droplet]("guids", "states", "app_guids", "space_guids", "organization_guids", paramSelector).by(byTime...),
	"POST /v3/droplets":                gives[v3.Droplet](201).from(jsonOf[v3.CreateDroplet](), jsonOf[v3.CopyDroplet]()).ask("source_guid"),
	"DELETE /v3/droplets/{guid}":       begins(),
	"GET /v3/droplets/{guid}":          gives[v3.Droplet](200),
	"PATCH /v3/droplets/{guid}":        gives[v3.Droplet](200).from(jsonOf[v3.UpdateMetadata]()),
	"GET /v3/droplets/{guid}/download": givesBytes("application/gzip"),
	"POST /v3/droplets/{guid}/upload":  begins().from(uploadForm),

	"GET /v3/packages":                 pageOf[v3.Package]("guids", "states", "types", "app_guids", "space_guids", "organization_guids", paramSelector).by(byTime...),
	"POST /v3/packages":                gives[v3.Package](201).from(jsonOf[v3.CreatePackage](), jsonOf[v3.CopyPackage]()).ask("source_guid"),
	"DELETE /v3/packages/{guid}":       begins(),
	"GET /v3/packages/{guid}/download": givesBytes("application/zip"),
	"GET /v3/packages/{guid}":          gives[v3.Package](200),
	"PATCH /v3/packages/{guid}":        gives[v3.Package](200).from(jsonOf[v3.UpdateMetadata]()),
	"GET /v3/packages/{guid}/droplets": pageOf[v3.Droplet]("guids", "states", paramSelector).by(byTime...),
	"POST /v3/packages/{guid}/upload":  gives[v3.Package](200).from(uploadForm),

	"POST /v3/resource_matches": gives[v3.ResourceMatches](201).from(jsonOf[v3.ResourceMatches]()),

	"GET /v3/stacks":             pageOf[v3.Stack]("names", "guids", "default", paramSelector),
	"POST /v3/stacks":            gives[v3.Stack](201).from(jsonOf[v3.CreateStack]()),
	"DELETE /v3/stacks/{guid}":   ends(204),
	"GET /v3/stacks/{guid}":      gives[v3.Stack](200),
	"PATCH /v3/stacks/{guid}":    gives[v3.Stack](200).from(jsonOf[v3.UpdateStack]()),
	"GET /v3/stacks/{guid}/apps": pageOf[v3.App]("names", "guids", "space_guids", "organization_guids", "stacks", "lifecycle_type", "include", paramSelector).by("created_at", "updated_at", "name", "state"),
}
