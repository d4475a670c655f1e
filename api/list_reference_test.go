package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// record is a resource as a client reads it.
type record = map[string]any

// textsAt returns the values at a path of a record. There are several if the path
// passes through lists, and none if it does not exist.
func textsAt(v any, path string) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		var out []string
		for _, one := range v {
			out = append(out, textsAt(one, path)...)
		}
		return out
	case map[string]any:
		head, rest, _ := strings.Cut(path, ".")
		return textsAt(v[head], rest)
	}
	return []string{fmt.Sprint(v)}
}

// textAt returns the first value at a path, or "".
func textAt(r record, path string) string {
	all := textsAt(r, path)
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// resourceIndex holds all resources of the lists, by kind and GUID.
type resourceIndex map[string]map[string]record

// fullLists maps each kind to the list of all its resources.
var fullLists = map[string]string{
	"App": "apps", "Space": "spaces", "Organization": "organizations", "Route": "routes", "ServiceInstance": "service_instances",
	"ServicePlan": "service_plans", "ServiceOffering": "service_offerings", "ServiceBroker": "service_brokers", "ServiceRouteBinding": "service_route_bindings",
	"IsolationSegment": "isolation_segments", "Domain": "domains", "User": "users",
}

func (h *orgServer) resourceIndex(t *testing.T) resourceIndex {
	t.Helper()
	out := resourceIndex{}
	for kind, noun := range fullLists {
		out[kind] = map[string]record{}
		for _, raw := range h.page(t, "/v3/"+noun+"?per_page=5000").Resources {
			var r record
			mustRead(t, raw, &r)
			out[kind][textAt(r, "guid")] = r
		}
	}
	for guid, r := range out["IsolationSegment"] {
		var orgs record
		h.want(200, "GET", "/v3/isolation_segments/"+guid+"/relationships/organizations", "", &orgs)
		r["orgs"] = orgs
	}
	for guid, r := range out["ServicePlan"] {
		var v record
		h.want(200, "GET", "/v3/service_plans/"+guid+"/visibility", "", &v)
		r["visibility"] = v
	}
	return out
}

// trails holds the path of a parameter's value in a resource. A step Kind:path
// continues at the resource of that kind.
var trails = map[string]string{
	"guids": "guid", "names": "name", "types": "type", "type": "type", "states": "state",
	"versions": "version", "deployable": "deployable", "sequence_ids": "sequence_id", "status_values": "status.value", "status_reasons": "status.reason",
	"package_guids": "package.guid", "lifecycle": "lifecycle", "lifecycle_type": "lifecycle.type", "default": "default",
	"hosts": "host", "paths": "path", "ports": "port", "domain_guids": "relationships.domain.data.guid",
	"available": "available", "broker_catalog_ids": "broker_catalog.id",
	"usernames": "username", "partial_usernames": "username", "origins": "origin", "user_guids": "relationships.user.data.guid",
	"route_guids": "relationships.route.data.guid", "target_guids": "target.guid", "actor_guids": "actor.guid",
	"service_instance_types":   "service_instance.type",
	"running_space_guids":      "relationships.running_spaces.data.guid",
	"staging_space_guids":      "relationships.staging_spaces.data.guid",
	"globally_enabled_running": "globally_enabled.running",
	"globally_enabled_staging": "globally_enabled.staging",

	"space_guids": inSpace, "organization_guids": inSpace + " Space:" + inOrg, "app_guids": ofApp, "app_names": ofApp + " App:name",
	"service_instance_guids": ofInstance, "service_instance_names": ofInstance + " ServiceInstance:name",
	"service_plan_guids": ofPlan, "service_plan_names": ofPlan + " ServicePlan:name",
	"service_offering_guids": ofOffering, "service_offering_names": ofOffering + " ServiceOffering:name",
	"service_broker_guids": ofBroker, "service_broker_names": ofBroker + " ServiceBroker:name",
	"stacks": "lifecycle.data.stack",

	// Trails that depend on the kind.
	"Process space_guids": ofApp + " App:" + inSpace, "Process organization_guids": ofApp + " App:" + inSpace + " Space:" + inOrg,
	"Package space_guids": ofApp + " App:" + inSpace, "Package organization_guids": ofApp + " App:" + inSpace + " Space:" + inOrg,
	"Build space_guids": ofApp + " App:" + inSpace, "Build organization_guids": ofApp + " App:" + inSpace + " Space:" + inOrg,
	"Droplet space_guids": ofApp + " App:" + inSpace, "Droplet organization_guids": ofApp + " App:" + inSpace + " Space:" + inOrg,
	"Task space_guids": ofApp + " App:" + inSpace, "Task organization_guids": ofApp + " App:" + inSpace + " Space:" + inOrg,
	"Space organization_guids": inOrg, "Domain organization_guids": inOrg, "Role organization_guids": inOrg,
	"Event space_guids": "space.guid", "Event organization_guids": "organization.guid",
	"Quota space_guids": "relationships.spaces.data.guid", "Route app_guids": "destinations.app.guid",
	"ServiceInstance service_plan_guids": "relationships.service_plan.data.guid", "ServiceInstance service_plan_names": "relationships.service_plan.data.guid ServicePlan:name",
	"ServicePlan service_offering_guids":       "relationships.service_offering.data.guid",
	"ServicePlan service_offering_names":       "relationships.service_offering.data.guid ServiceOffering:name",
	"ServicePlan service_broker_guids":         "relationships.service_offering.data.guid ServiceOffering:" + ofItsBroker,
	"ServicePlan service_broker_names":         "relationships.service_offering.data.guid ServiceOffering:" + ofItsBroker + " ServiceBroker:name",
	"ServiceUsageEvent service_offering_guids": "service_offering.guid",
}

const (
	inSpace     = "relationships.space.data.guid"
	inOrg       = "relationships.organization.data.guid"
	ofApp       = "relationships.app.data.guid"
	ofInstance  = "relationships.service_instance.data.guid"
	ofPlan      = ofInstance + " ServiceInstance:relationships.service_plan.data.guid"
	ofOffering  = ofPlan + " ServicePlan:relationships.service_offering.data.guid"
	ofBroker    = ofItsBroker
	ofItsBroker = "relationships.service_broker.data.guid"
)

// values returns the values of a resource that a parameter is compared with.
func (a resourceIndex) values(t *testing.T, kind, param string, r record) []string {
	t.Helper()
	if fn, ok := odd[kind+" "+param]; ok {
		return fn(a, r)
	}
	way, ok := trails[kind+" "+param]
	if !ok {
		way, ok = trails[param]
	}
	if !ok {
		t.Fatalf("no way to see what %s of %s is about: add one", param, kind)
	}
	return a.follow(r, way)
}

// follow follows a trail from resource to resource.
func (a resourceIndex) follow(r record, way string) []string {
	steps := strings.Fields(way)
	found := textsAt(r, steps[0])
	for _, step := range steps[1:] {
		kind, path, _ := strings.Cut(step, ":")
		var next []string
		for _, guid := range found {
			next = append(next, textsAt(a[kind][guid], path)...)
		}
		found = next
	}
	return found
}

// odd holds the parameters that need more than one trail.
var odd = map[string]func(a resourceIndex, r record) []string{
	"Buildpack stacks": func(_ resourceIndex, r record) []string {
		if stack := textAt(r, "stack"); stack != "" {
			return []string{stack}
		}
		return []string{"host"}
	},
	"Quota organization_guids": func(_ resourceIndex, r record) []string {
		return append(textsAt(r, "relationships.organizations.data.guid"), textsAt(r, inOrg)...)
	},
	"IsolationSegment organization_guids": func(a resourceIndex, r record) []string {
		return textsAt(a["IsolationSegment"][textAt(r, "guid")], "orgs.data.guid")
	},
	"Droplet current": func(a resourceIndex, r record) []string {
		if textAt(a["App"][textAt(r, ofApp)], "relationships.current_droplet.data.guid") == textAt(r, "guid") {
			return []string{"true"}
		}
		return nil
	},
	"Route service_instance_guids": func(a resourceIndex, r record) (out []string) {
		for _, b := range a["ServiceRouteBinding"] {
			if textAt(b, "relationships.route.data.guid") == textAt(r, "guid") {
				out = append(out, textAt(b, ofInstance))
			}
		}
		return out
	},
	"ServicePlan service_instance_guids": func(a resourceIndex, r record) (out []string) {
		for guid, i := range a["ServiceInstance"] {
			if textAt(i, "relationships.service_plan.data.guid") == textAt(r, "guid") {
				out = append(out, guid)
			}
		}
		return out
	},
	"ServicePlan space_guids":            func(a resourceIndex, r record) []string { return a.spacesWith(r) },
	"ServicePlan organization_guids":     func(a resourceIndex, r record) []string { return a.orgsOf(a.spacesWith(r)) },
	"ServiceOffering space_guids":        func(a resourceIndex, r record) []string { return a.spacesWithOffering(r) },
	"ServiceOffering organization_guids": func(a resourceIndex, r record) []string { return a.orgsOf(a.spacesWithOffering(r)) },
}

// anywhere is a value that matches every filter.
const anywhere = "*"

// spacesWith returns the spaces that can use a plan.
func (a resourceIndex) spacesWith(plan record) (out []string) {
	switch textAt(plan, "visibility_type") {
	case "public":
		return []string{anywhere}
	case "organization":
		for guid, sp := range a["Space"] {
			if slices.Contains(textsAt(a["ServicePlan"][textAt(plan, "guid")], "visibility.organizations.guid"), textAt(sp, inOrg)) {
				out = append(out, guid)
			}
		}
		return out
	case "space":
		return a.follow(plan, "relationships.service_offering.data.guid ServiceOffering:"+ofItsBroker+" ServiceBroker:"+inSpace)
	}
	return nil
}

func (a resourceIndex) spacesWithOffering(offering record) (out []string) {
	for _, p := range a["ServicePlan"] {
		if textAt(p, "relationships.service_offering.data.guid") == textAt(offering, "guid") {
			out = append(out, a.spacesWith(p)...)
		}
	}
	return out
}

func (a resourceIndex) orgsOf(spaces []string) (out []string) {
	for _, guid := range spaces {
		if guid == anywhere {
			return spaces
		}
		out = append(out, textAt(a["Space"][guid], inOrg))
	}
	return out
}
