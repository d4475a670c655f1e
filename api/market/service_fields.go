package market

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// The query parameters that select fields of resources related to services.
const (
	FieldsOfBroker         = "fields[service_broker]"
	FieldsOfOfferingBroker = "fields[service_offering.service_broker]"
	FieldsOfSpace          = "fields[space]"
	FieldsOfOrg            = "fields[space.organization]"
	FieldsOfPlan           = "fields[service_plan]"
	FieldsOfPlanOffering   = "fields[service_plan.service_offering]"
	FieldsOfPlanBroker     = "fields[service_plan.service_offering.service_broker]"
)

// ServiceFieldNames lists the fields that each of these query parameters can select.
var ServiceFieldNames = map[string][]string{
	FieldsOfBroker:         {"guid", "name"},
	FieldsOfOfferingBroker: {"guid", "name"},
	FieldsOfSpace:          {"guid", "name", "relationships.organization"},
	FieldsOfOrg:            {"guid", "name"},
	FieldsOfPlan:           {"guid", "name", "relationships.service_offering"},
	FieldsOfPlanOffering:   {"guid", "name", "description", "documentation_url", "tags", "relationships.service_broker"},
	FieldsOfPlanBroker:     {"guid", "name"},
}

// serviceIncludes holds the GUIDs of resources that services refer to directly. A GUID
// can occur twice. The other related resources are found from there.
type serviceIncludes struct{ spaces, plans, offerings, brokers []string }

// serviceFields returns the fields of related resources that a query selects. It
// accepts the parameters in known.
func (h *Handlers) serviceFields(q rest.Query, b serviceIncludes, known ...string) (map[string]any, error) {
	var out map[string]any
	for _, param := range known {
		want, given := q.Filters[param]
		if !given {
			continue
		}
		for _, name := range want {
			if !slices.Contains(ServiceFieldNames[param], name) {
				return nil, rest.BadQuery("%s can only have: '%s'", param, strings.Join(ServiceFieldNames[param], "', '"))
			}
		}
		noun, all, err := h.fieldResources(param, &b)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]any{}
		}
		if out[noun], err = selectFields(all, want); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fieldResources returns the resources that a parameter selects, and the key under
// which the response lists them.
func (h *Handlers) fieldResources(param string, b *serviceIncludes) (noun string, all []any, err error) {
	switch param {
	case FieldsOfSpace:
		all, err = anyOf(b.spaces, h.Platform.Registry.Space, h.Present.ShowSpace)
		return "spaces", all, err
	case FieldsOfOrg:
		orgs, err := lead(b.spaces, h.Platform.Registry.Space, func(sp app.Space) string { return sp.Org })
		if err != nil {
			return "", nil, err
		}
		all, err = anyOf(orgs, h.Platform.Registry.Org, h.Present.ShowOrg)
		return "organizations", all, err
	case FieldsOfPlan:
		all, err = anyOf(b.plans, h.Platform.Services.Plan, h.presentPlan)
		return "service_plans", all, err
	}
	offerings, err := lead(b.plans, h.Platform.Services.Plan, func(p services.Plan) string { return p.Offering })
	if err != nil {
		return "", nil, err
	}
	offerings = append(offerings, b.offerings...)
	if param == FieldsOfPlanOffering {
		all, err = anyOf(offerings, h.Platform.Services.Offering, h.presentOffering)
		return "service_offerings", all, err
	}
	brokers, err := lead(offerings, h.Platform.Services.Offering, func(o services.Offering) string { return o.Broker })
	if err != nil {
		return "", nil, err
	}
	all, err = anyOf(append(brokers, b.brokers...), h.Platform.Services.Broker, h.presentBroker)
	return "service_brokers", all, err
}

// anyOf reads and presents the resource of each GUID once.
func anyOf[T, V any](guids []string, get func(guid string) (T, error), present func(T) V) ([]any, error) {
	return rest.PresentEach(guids, get, func(v T) any { return present(v) })
}

// lead returns the GUIDs that the resources refer to.
func lead[T any](guids []string, get func(guid string) (T, error), next func(T) string) ([]string, error) {
	return rest.PresentEach(guids, get, next)
}

// selectFields returns the resources with only the named fields.
func selectFields(all []any, names []string) ([]map[string]any, error) {
	out := []map[string]any{}
	for _, v := range all {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("cannot encode a related resource: %w", err)
		}
		var whole map[string]any
		if err := json.Unmarshal(raw, &whole); err != nil {
			return nil, fmt.Errorf("cannot decode a related resource: %w", err)
		}
		part := map[string]any{}
		for _, name := range names {
			copyField(part, whole, strings.Split(name, "."))
		}
		out = append(out, part)
	}
	return out, nil
}

// copyField copies the field at a path.
func copyField(to, from map[string]any, path []string) {
	v, ok := from[path[0]]
	if !ok {
		return
	}
	if len(path) == 1 {
		to[path[0]] = v
		return
	}
	below, ok := v.(map[string]any)
	if !ok {
		return
	}
	next, ok := to[path[0]].(map[string]any)
	if !ok {
		next = map[string]any{}
		to[path[0]] = next
	}
	copyField(next, below, path[1:])
}
