package api

// wiring is how apps are wished for and reached, and what is told of them.
func (s *Server) wiring() map[string]handler {
	return map[string]handler{
		"POST /v3/spaces/{guid}/manifest_diff":          s.diffManifest,
		"POST /v3/spaces/{guid}/actions/apply_manifest": s.applyManifest,

		"DELETE /v3/spaces/{guid}/routes":           s.deleteUnmapped,
		"GET /v3/domains/{guid}/route_reservations": s.getReservation,

		"GET /v3/routes":                       s.listRoutes,
		"POST /v3/routes":                      s.createRoute,
		"PATCH /v3/routes/{guid}":              s.updateRoute,
		"GET /v3/routes/{guid}":                s.getRoute,
		"DELETE /v3/routes/{guid}":             s.deleteRoute,
		"GET /v3/routes/{guid}/destinations":   s.getDestinations,
		"POST /v3/routes/{guid}/destinations":  s.addDestinations,
		"PATCH /v3/routes/{guid}/destinations": s.setDestinations,

		"GET /v3/jobs/{guid}":  s.getJob,
		"GET /v3/audit_events": s.listEvents,

		"GET /v3/audit_events/{guid}":                         s.getEvent,
		"DELETE /v3/routes/{guid}/destinations/{destination}": s.removeDestination,
		"PATCH /v3/routes/{guid}/destinations/{destination}":  s.updateDestination,

		"GET /routing/v1/router_groups":        s.listRouterGroups,
		"GET /openapi.json":                    s.getDescription,
		"GET /routing/v1/router_groups/{guid}": s.getRouterGroup,

		"GET /api/v1/info":        s.logCacheInfo,
		"GET /api/v1/read/{guid}": s.logCacheRead,
		"GET /api/v1/meta":        s.logCacheMeta,

		"GET /stream/v1/apps/{guid}/verify": s.verifyLog,
	}
}

func (s *Server) apps() map[string]handler {
	return map[string]handler{
		"GET /v3/apps":           s.listApps,
		"POST /v3/apps":          s.createApp,
		"GET /v3/apps/{guid}":    s.getApp,
		"PATCH /v3/apps/{guid}":  s.updateApp,
		"DELETE /v3/apps/{guid}": s.deleteApp,

		"POST /v3/apps/{guid}/actions/start":   s.startApp,
		"POST /v3/apps/{guid}/actions/stop":    s.stopApp,
		"POST /v3/apps/{guid}/actions/restart": s.restartApp,

		"GET /v3/apps/{guid}/env":                             s.getEnv,
		"GET /v3/apps/{guid}/environment_variables":           s.getVariables,
		"PATCH /v3/apps/{guid}/environment_variables":         s.updateVariables,
		"GET /v3/apps/{guid}/relationships/current_droplet":   s.getCurrentRelationship,
		"PATCH /v3/apps/{guid}/relationships/current_droplet": s.setCurrentDroplet,
		"GET /v3/apps/{guid}/droplets/current":                s.getCurrentDroplet,

		"GET /v3/apps/{guid}/droplets":    s.listAppDroplets,
		"GET /v3/apps/{guid}/manifest":    s.getManifest,
		"GET /v3/apps/{guid}/permissions": s.getPermissions,

		"GET /v3/apps/{guid}/processes": s.listAppProcesses,
		"GET /v3/apps/{guid}/routes":    s.listAppRoutes,
		"GET /v3/apps/{guid}/packages":  s.listAppPackages,
		"GET /v3/apps/{guid}/builds":    s.listAppBuilds,
		"GET /v3/apps/{guid}/sidecars":  s.listAppSidecars,
		"POST /v3/apps/{guid}/sidecars": s.createSidecar,
	}
}

// processes have two names each: their guid, and their app with their type.
func (s *Server) processes() map[string]handler {
	out := map[string]handler{
		"GET /v3/processes":          s.listProcesses,
		"GET /v3/sidecars/{guid}":    s.getSidecar,
		"PATCH /v3/sidecars/{guid}":  s.updateSidecar,
		"DELETE /v3/sidecars/{guid}": s.deleteSidecar,
	}
	for _, name := range []string{"/v3/processes/{guid}", "/v3/apps/{guid}/processes/{type}"} {
		out["GET "+name] = s.getProcess
		out["PATCH "+name] = s.updateProcess
		out["POST "+name+"/actions/scale"] = s.scaleProcess
		out["GET "+name+"/stats"] = s.getStats
		out["GET "+name+"/process_instances"] = s.listInstances
		out["GET "+name+"/sidecars"] = s.listProcessSidecars
		out["DELETE "+name+"/instances/{index}"] = s.deleteInstance
	}
	return out
}

// bits are what is pushed, and what is made of it.
func (s *Server) bits() map[string]handler {
	return map[string]handler{
		"POST /v3/resource_matches":             s.matchResources,
		"GET /v3/packages":                      s.listPackages,
		"POST /v3/packages":                     s.createPackage,
		"GET /v3/packages/{guid}":               s.getPackage,
		"PATCH /v3/packages/{guid}":             s.updatePackage,
		"POST /v3/packages/{guid}/upload":       s.uploadPackage,
		"POST /dew/v1/spaces/{guid}/buildpacks": s.uploadFolder,
		"GET /v3/packages/{guid}/droplets":      s.listPackageDroplets,
		"GET /v3/builds":                        s.listBuilds,
		"POST /v3/builds":                       s.createBuild,
		"GET /v3/builds/{guid}":                 s.getBuild,
		"PATCH /v3/builds/{guid}":               s.updateBuild,
		"GET /v3/droplets":                      s.listDroplets,
		"GET /v3/droplets/{guid}":               s.getDroplet,
		"PATCH /v3/droplets/{guid}":             s.updateDroplet,
		"GET /v3/droplets/{guid}/download":      s.downloadDroplet,
	}
}
