package market

import (
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// planHandlers answers requests about service plans and their visibility.
type planHandlers struct{ *Handlers }

func (h planHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_plans", Needs: access.Authenticated, Open: true,
			Handler: h.listPlans, Shape: rest.PageOf[v3.ServicePlan]("names", "guids", "space_guids", "organization_guids", "available", "broker_catalog_ids", "service_broker_guids", "service_broker_names", "service_offering_guids", "service_offering_names", "service_instance_guids", "include", FieldsOfOfferingBroker, rest.ParamSelector),
		},
		{
			Pattern: "GET /v3/service_plans/{guid}", Needs: access.Authenticated, Open: true,
			Handler: h.getPlan, Shape: rest.Returns[v3.ServicePlan](200).Query("include", FieldsOfOfferingBroker),
		},
		{
			Pattern: "PATCH /v3/service_plans/{guid}", Needs: access.Authenticated,
			Handler: h.updatePlan, Shape: rest.Returns[v3.ServicePlan](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{Pattern: "DELETE /v3/service_plans/{guid}", Needs: access.Authenticated, Handler: h.deletePlan, Shape: rest.Empty(204)},
		{Pattern: "GET /v3/service_plans/{guid}/visibility", Needs: access.Authenticated, Handler: h.getVisibility, Shape: rest.Returns[v3.PlanVisibility](200)},
		{
			Pattern: "POST /v3/service_plans/{guid}/visibility", Needs: access.Authenticated,
			Handler: h.addVisibility, Shape: rest.Returns[v3.PlanVisibility](200).Reads(rest.JSON[v3.PlanVisibility]()),
		},
		{
			Pattern: "PATCH /v3/service_plans/{guid}/visibility", Needs: access.Authenticated,
			Handler: h.setVisibility, Shape: rest.Returns[v3.PlanVisibility](200).Reads(rest.JSON[v3.PlanVisibility]()),
		},
		{Pattern: "DELETE /v3/service_plans/{guid}/visibility/{org}", Needs: access.Authenticated, Handler: h.removeVisibility, Shape: rest.Empty(204)},
	}
}

func (h planHandlers) listPlans(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes("service_offering", "space.organization")
	if err != nil {
		return nil, err
	}
	available, err := q.BoolFilter("available")
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Services.Plans(services.PlanFilter{
		GUIDs: q.Filters["guids"], Names: q.Filters["names"], IDs: q.Filters["broker_catalog_ids"],
		Offerings: q.Filters["service_offering_guids"], OfferingNames: q.Filters["service_offering_names"],
		Brokers: q.Filters["service_broker_guids"], BrokerNames: q.Filters["service_broker_names"],
		Instances: q.Filters["service_instance_guids"], Spaces: q.Filters["space_guids"], Orgs: q.Filters["organization_guids"],
		Available: available, Viewer: viewer(perms),
	})
	if err != nil {
		return nil, err
	}
	out := rest.List(h.Links, r, q, all, rest.View[services.Plan, v3.ServicePlan]{
		Key: func(p services.Plan) rest.Key {
			return rest.Key{Name: p.Name, Created: p.CreatedAt, Updated: p.UpdatedAt, GUID: p.GUID}
		},
		Present: h.presentPlan,
		Labels:  func(p services.Plan) map[string]string { return p.Metadata.Labels },
	})
	out.Included, err = h.planIncludes(q, requested, out.Resources)
	return out, err
}

// planIncludes returns the resources that a request includes with plans.
func (h planHandlers) planIncludes(q rest.Query, requested map[string]bool, plans []v3.ServicePlan) (map[string]any, error) {
	var b serviceIncludes
	for _, p := range plans {
		b.offerings = append(b.offerings, p.Relationships.ServiceOffering.ID())
		if p.Relationships.Space != nil {
			b.spaces = append(b.spaces, p.Relationships.Space.ID())
		}
	}
	included, err := h.serviceFields(q, b, FieldsOfOfferingBroker)
	if err != nil {
		return nil, err
	}
	add := func(name string, all any) {
		if included == nil {
			included = map[string]any{}
		}
		included[name] = all
	}
	if requested["service_offering"] {
		all, err := rest.PresentEach(b.offerings, h.Platform.Services.Offering, h.presentOffering)
		if err != nil {
			return nil, err
		}
		add("service_offerings", all)
	}
	if !requested["space.organization"] {
		return included, nil
	}
	orgs, err := h.Platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	in := rest.Include{Spaces: b.spaces, Orgs: rest.Values(b.spaces, func(space string) string { return orgs[space] })}
	resources, err := h.Present.Include(in)
	for name, all := range resources {
		add(name, all)
	}
	return included, err
}

// planOf returns the plan that the path names, if the caller can see it.
func (h planHandlers) planOf(r *http.Request) (p services.Plan, err error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return p, err
	}
	all, err := h.seenPlans(perms, services.PlanFilter{GUIDs: []string{r.PathValue("guid")}})
	if err != nil {
		return p, err
	}
	if len(all) == 0 {
		return p, rest.NotFound("Service plan")
	}
	return all[0], nil
}

// seenPlans returns the plans that match the filter and that the caller can see. Those
// are the plans they can use or, if there are none, the plans of visible service
// instances.
func (h *Handlers) seenPlans(perms access.Permissions, f services.PlanFilter) ([]services.Plan, error) {
	f.Viewer = viewer(perms)
	all, err := h.Platform.Services.Plans(f)
	if err != nil || len(all) > 0 || f.Viewer == nil {
		return all, err
	}
	instances, err := h.Platform.Services.Instances(services.InstanceFilter{Type: services.Managed})
	if err != nil {
		return nil, err
	}
	f.Viewer, f.Instances = nil, []string{"none"} // an empty list would match all
	for _, i := range instances {
		if perms.SeesService(i) {
			f.Instances = append(f.Instances, i.GUID)
		}
	}
	return h.Platform.Services.Plans(f)
}

func (h planHandlers) getPlan(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes("service_offering", "space.organization")
	if err != nil {
		return nil, err
	}
	p, err := h.planOf(r)
	if err != nil {
		return nil, err
	}
	out := h.presentPlan(p)
	out.Included, err = h.planIncludes(q, requested, []v3.ServicePlan{out})
	return out, err
}

// ownPlan returns the plan that the path names, if the caller can change it.
func (h planHandlers) ownPlan(r *http.Request) (services.Plan, error) {
	p, err := h.planOf(r)
	if err == nil {
		err = rest.Missing("Service plan", h.administer(r.Context(), p.Broker))
	}
	return p, err
}

func (h planHandlers) updatePlan(r *http.Request) (any, error) {
	p, err := h.ownPlan(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	if p, err = h.Platform.Services.UpdatePlanMetadata(p.GUID, platform.MetadataChange(body.Metadata)); err != nil {
		return nil, rest.Missing("Service plan", err)
	}
	return h.presentPlan(p), nil
}

func (h planHandlers) deletePlan(r *http.Request) (any, error) {
	p, err := h.ownPlan(r)
	if err != nil {
		return nil, err
	}
	if err := h.Platform.Services.DeletePlan(p.GUID); err != nil {
		return nil, rest.Missing("Service plan", err)
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

func (h planHandlers) getVisibility(r *http.Request) (any, error) {
	p, err := h.planOf(r)
	if err != nil {
		return nil, err
	}
	return h.presentVisibility(r, p)
}

func (h planHandlers) setVisibility(r *http.Request) (any, error) {
	return h.changeVisibility(r, h.Platform.Services.SetVisibility)
}

func (h planHandlers) addVisibility(r *http.Request) (any, error) {
	return h.changeVisibility(r, h.Platform.Services.AddVisibility)
}

// visibilityChange is a method of the Marketplace.
type visibilityChange func(plan string, v services.Visibility, by app.Actor) (services.Plan, error)

func (h planHandlers) changeVisibility(r *http.Request, change visibilityChange) (any, error) {
	p, err := h.ownPlan(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.PlanVisibility](r)
	if err != nil {
		return nil, err
	}
	v := services.Visibility{Type: services.VisibilityType(body.Type)}
	for _, o := range body.Organizations {
		v.Orgs = append(v.Orgs, o.GUID)
	}
	if body.Space != nil {
		return nil, rest.Unprocessable("space is read-only: a plan belongs to the space of its service broker")
	}
	if p, err = change(p.GUID, v, platform.ActorOf(r.Context())); err != nil {
		return nil, rest.Missing("Service plan", err)
	}
	return h.presentVisibility(r, p)
}

func (h planHandlers) removeVisibility(r *http.Request) (any, error) {
	p, err := h.ownPlan(r)
	if err != nil {
		return nil, err
	}
	org := r.PathValue("org")
	if p.Visibility.Type != services.Organization {
		return nil, rest.Unprocessable("Service plan is not available to organizations: its visibility is %s", p.Visibility.Type)
	}
	if !slices.Contains(p.Visibility.Orgs, org) {
		return nil, rest.NotFound("Service plan visibility")
	}
	if err := h.Platform.Services.RemoveVisibility(p.GUID, org, platform.ActorOf(r.Context())); err != nil {
		return nil, rest.Missing("Service plan visibility", err)
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// presentVisibility shows which orgs can use a plan, as far as the caller can see them.
func (h planHandlers) presentVisibility(r *http.Request, p services.Plan) (any, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	out := v3.PlanVisibility{Type: string(p.Visibility.Type)}
	for _, guid := range p.Visibility.Orgs {
		o, err := h.Platform.Registry.Org(guid)
		if err == nil && perms.SeesOrg(guid) {
			out.Organizations = append(out.Organizations, v3.NamedGUID{GUID: o.GUID, Name: o.Name})
		}
	}
	if p.Visibility.Space == "" {
		return out, nil
	}
	sp, err := h.Platform.Registry.Space(p.Visibility.Space)
	if err != nil {
		return nil, rest.Missing("Service plan", err)
	}
	out.Space = &v3.NamedGUID{GUID: sp.GUID, Name: sp.Name}
	return out, nil
}

func (h *Handlers) presentPlan(p services.Plan) v3.ServicePlan {
	self := h.Links.Href("v3", "service_plans", p.GUID)
	out := v3.ServicePlan{
		GUID: p.GUID, Name: p.Name, Description: p.Description, VisibilityType: string(p.Visibility.Type),
		Available: p.Active, Free: p.Free, Costs: []v3.ServiceCost{}, CreatedAt: v3.At(p.CreatedAt), UpdatedAt: v3.At(p.UpdatedAt),
		MaintenanceInfo: v3.MaintenanceInfo(p.Maintenance),
		BrokerCatalog: v3.PlanCatalog{
			ID: p.ID, Metadata: rest.OrObject(p.Catalog), Features: v3.PlanFeatures{PlanUpdateable: p.PlanUpdateable, Bindable: p.Bindable},
		},
		Schemas: v3.ServiceSchemas{
			ServiceInstance: v3.InstanceSchemas{
				Create: v3.ParametersSchema{Parameters: rest.OrObject(p.Schemas.InstanceCreate)},
				Update: v3.ParametersSchema{Parameters: rest.OrObject(p.Schemas.InstanceUpdate)},
			},
			ServiceBinding: v3.BindingSchemas{Create: v3.ParametersSchema{Parameters: rest.OrObject(p.Schemas.BindingCreate)}},
		},
		Relationships: v3.ServicePlanRelationships{ServiceOffering: v3.To(p.Offering), Space: rest.OptionalToOne(p.Visibility.Space)},
		Metadata:      rest.PresentMetadata(p.Metadata),
		Links: v3.Links{
			"self": {Href: self}, "visibility": {Href: self + "/visibility"},
			"service_offering": {Href: h.Links.Href("v3", "service_offerings", p.Offering)},
		},
	}
	for _, c := range p.Costs {
		out.Costs = append(out.Costs, v3.ServiceCost(c))
	}
	if p.MaxPolling > 0 {
		seconds := int(p.MaxPolling / time.Second)
		out.BrokerCatalog.MaximumPollingDuration = &seconds
	}
	return out
}
