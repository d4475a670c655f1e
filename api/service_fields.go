package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// The parameters that ask for parts of what stands beside services, and which
// parts there are.
const (
	fieldsOfBroker         = "fields[service_broker]"
	fieldsOfOfferingBroker = "fields[service_offering.service_broker]"
	fieldsOfSpace          = "fields[space]"
	fieldsOfOrg            = "fields[space.organization]"
	fieldsOfPlan           = "fields[service_plan]"
	fieldsOfPlanOffering   = "fields[service_plan.service_offering]"
	fieldsOfPlanBroker     = "fields[service_plan.service_offering.service_broker]"
)

var serviceFieldNames = map[string][]string{
	fieldsOfBroker:         {"guid", "name"},
	fieldsOfOfferingBroker: {"guid", "name"},
	fieldsOfSpace:          {"guid", "name", "relationships.organization"},
	fieldsOfOrg:            {"guid", "name"},
	fieldsOfPlan:           {"guid", "name", "relationships.service_offering"},
	fieldsOfPlanOffering:   {"guid", "name", "description", "documentation_url", "tags", "relationships.service_broker"},
	fieldsOfPlanBroker:     {"guid", "name"},
}

// besideServices are the guids of what services lead to directly; some may be there
// twice. The rest is found from there.
type besideServices struct{ spaces, plans, offerings, brokers []string }

// serviceFields are the parts that a query asks for of what stands beside. It
// knows the parameters in known.
func (s *Server) serviceFields(q rest.Query, b besideServices, known ...string) (map[string]any, error) {
	var out map[string]any
	for _, param := range known {
		want, given := q.Filters[param]
		if !given {
			continue
		}
		for _, name := range want {
			if !slices.Contains(serviceFieldNames[param], name) {
				return nil, rest.BadQuery("%s can only have: '%s'", param, strings.Join(serviceFieldNames[param], "', '"))
			}
		}
		noun, all, err := s.fieldResources(param, &b)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]any{}
		}
		if out[noun], err = parts(all, want); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fieldResources are the resources that a parameter asks for, under the noun that
// they are shown by.
func (s *Server) fieldResources(param string, b *besideServices) (noun string, all []any, err error) {
	switch param {
	case fieldsOfSpace:
		all, err = anyOf(b.spaces, s.c.Registry.Space, s.presentSpace)
		return "spaces", all, err
	case fieldsOfOrg:
		orgs, err := lead(b.spaces, s.c.Registry.Space, func(sp app.Space) string { return sp.Org })
		if err != nil {
			return "", nil, err
		}
		all, err = anyOf(orgs, s.c.Registry.Org, s.presentOrg)
		return "organizations", all, err
	case fieldsOfPlan:
		all, err = anyOf(b.plans, s.c.Services.Plan, s.presentPlan)
		return "service_plans", all, err
	}
	offerings, err := lead(b.plans, s.c.Services.Plan, func(p services.Plan) string { return p.Offering })
	if err != nil {
		return "", nil, err
	}
	offerings = append(offerings, b.offerings...)
	if param == fieldsOfPlanOffering {
		all, err = anyOf(offerings, s.c.Services.Offering, s.presentOffering)
		return "service_offerings", all, err
	}
	brokers, err := lead(offerings, s.c.Services.Offering, func(o services.Offering) string { return o.Broker })
	if err != nil {
		return "", nil, err
	}
	all, err = anyOf(append(brokers, b.brokers...), s.c.Services.Broker, s.presentBroker)
	return "service_brokers", all, err
}

// anyOf reads and presents each of the guids once, as whatever it is.
func anyOf[T, V any](guids []string, get func(guid string) (T, error), present func(T) V) ([]any, error) {
	return rest.PresentEach(guids, get, func(v T) any { return present(v) })
}

// lead follows each of the guids one step.
func lead[T any](guids []string, get func(guid string) (T, error), next func(T) string) ([]string, error) {
	return rest.PresentEach(guids, get, next)
}

// parts are resources with nothing but the named fields.
func parts(all []any, names []string) ([]map[string]any, error) {
	out := []map[string]any{}
	for _, v := range all {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("cannot encode what stands beside: %w", err)
		}
		var whole map[string]any
		if err := json.Unmarshal(raw, &whole); err != nil {
			return nil, fmt.Errorf("cannot read what stands beside: %w", err)
		}
		part := map[string]any{}
		for _, name := range names {
			take(part, whole, strings.Split(name, "."))
		}
		out = append(out, part)
	}
	return out, nil
}

// take copies the field at a path.
func take(to, from map[string]any, path []string) {
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
	take(next, below, path[1:])
}
