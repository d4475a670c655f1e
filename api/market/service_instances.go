package market

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// instanceHandlers answers requests about service instances.
type instanceHandlers struct{ *Handlers }

func (h instanceHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_instances", Needs: access.Authenticated,
			Handler: h.listServices, Shape: rest.PageOf[v3.ServiceInstance](append([]string{"names", "guids", "space_guids", "organization_guids", "service_plan_guids", "service_plan_names", "type", rest.ParamSelector}, fieldsOfInstance...)...),
		},
		{
			Pattern: "POST /v3/service_instances", Needs: access.Authenticated, // the body names the space
			Handler: h.createService, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceInstance](201)).Reads(rest.JSON[v3.CreateServiceInstance]()),
		},
		{
			Pattern: "GET /v3/service_instances/{guid}", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.getService, Shape: rest.Returns[v3.ServiceInstance](200).Query(fieldsOfInstance...),
		},
		{
			Pattern: "PATCH /v3/service_instances/{guid}", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.updateService, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceInstance](200)).Reads(rest.JSON[v3.UpdateServiceInstance]()),
		},
		{
			Pattern: "DELETE /v3/service_instances/{guid}", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.deleteService, Shape: rest.StartsJob().Or(rest.Empty(204)).Query("purge"),
		},
		{
			Pattern: "GET /v3/service_instances/{guid}/credentials", Needs: access.ReadSecrets, Resource: access.ServiceInstance,
			Handler: h.getServiceCredentials, Shape: rest.Returns[json.RawMessage](200),
		},
		{
			Pattern: "GET /v3/service_instances/{guid}/parameters", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.getServiceParameters, Shape: rest.Returns[json.RawMessage](200),
		},
		{
			Pattern: "GET /v3/service_instances/{guid}/permissions", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.getServicePermissions, Shape: rest.Returns[v3.ServiceInstancePermissions](200), Scopes: []string{scopeOfDashboards},
		},
		{ // dashboards of the time of the v2 API ask here
			Pattern: "GET /v2/service_instances/{guid}/permissions", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.getServicePermissions, Shape: rest.Returns[v3.ServiceInstancePermissions](200), Scopes: []string{scopeOfDashboards},
		},
	}
}

// scopeOfDashboards is the scope of the tokens of service dashboards. It allows nothing
// but to ask for the permissions of the user.
const scopeOfDashboards = "cloud_controller_service_permissions.read"

// fieldsOfInstance lists the query parameters of service instances that select fields.
var fieldsOfInstance = []string{FieldsOfSpace, FieldsOfOrg, FieldsOfPlan, FieldsOfPlanOffering, FieldsOfPlanBroker}

func (h instanceHandlers) listServices(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	f := services.InstanceFilter{
		GUIDs: q.Filters["guids"], Names: q.Filters["names"], Spaces: q.Filters["space_guids"], Orgs: q.Filters["organization_guids"],
		Plans: q.Filters["service_plan_guids"], PlanNames: q.Filters["service_plan_names"],
	}
	if kind := q.Filters["type"]; kind != nil {
		if len(kind) > 1 || kind[0] != v3.ServiceManaged && kind[0] != v3.ServiceUserProvided {
			return nil, rest.BadQuery("Type must be one of 'managed', 'user-provided'")
		}
		f.Type = services.InstanceType(kind[0])
	}
	all, err := h.Platform.Services.Instances(f)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(i services.Instance) bool { return !perms.SeesService(i) })
	out := rest.List(h.Links, r, q, all, rest.View[services.Instance, v3.ServiceInstance]{
		Key: func(i services.Instance) rest.Key {
			return rest.Key{Name: i.Name, Created: i.CreatedAt, Updated: i.UpdatedAt, GUID: i.GUID}
		},
		Present: h.presentService,
		Labels:  func(i services.Instance) map[string]string { return i.Metadata.Labels },
	})
	out.Included, err = h.instanceIncludes(q, out.Resources)
	return out, err
}

// instanceIncludes returns the related resources that the query includes with service
// instances.
func (h instanceHandlers) instanceIncludes(q rest.Query, all []v3.ServiceInstance) (map[string]any, error) {
	var b serviceIncludes
	for _, i := range all {
		b.spaces = append(b.spaces, i.Relationships.Space.ID())
		if i.Relationships.ServicePlan != nil {
			b.plans = append(b.plans, i.Relationships.ServicePlan.ID())
		}
	}
	return h.serviceFields(q, b, fieldsOfInstance...)
}

func (h instanceHandlers) getService(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	out := h.presentService(i)
	out.Included, err = h.instanceIncludes(q, []v3.ServiceInstance{out})
	return out, err
}

func (h instanceHandlers) createService(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateServiceInstance](r)
	if err != nil {
		return nil, err
	}
	n := services.NewInstance{
		Type: services.InstanceType(body.Type), Name: body.Name, Space: body.Relationships.Space.ID(), Tags: body.Tags,
		Parameters: body.Parameters, Credentials: body.Credentials, SyslogDrain: body.SyslogDrainURL, RouteService: body.RouteServiceURL,
		Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)), By: platform.ActorOf(r.Context()), SetBy: access.Origin(r.Context()),
	}
	if err := checkServiceBody(body); err != nil {
		return nil, err
	}
	if err := h.Access.Require(r.Context(), access.Develop, n.Space); err != nil {
		return nil, platform.InvalidSpace(err)
	}
	if err := h.Present.Feature(r.Context(), app.FlagServiceCreation); err != nil {
		return nil, err
	}
	if body.Relationships.ServicePlan != nil {
		n.Plan = body.Relationships.ServicePlan.ID()
		if err := h.planIsSeen(r, n.Plan); err != nil {
			return nil, err
		}
	}
	i, o, err := h.Platform.CreateService(n)
	if err != nil {
		return nil, err
	}
	if o.GUID != "" {
		return h.withCost(h.begun(r.Context(), o), i, n.Plan), nil
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentService(i)}, nil
}

// withCost adds a warning to an answer if the new plan is not free.
func (h instanceHandlers) withCost(a rest.Answer, i services.Instance, plan string) rest.Answer {
	p, err := h.Platform.Services.Plan(plan)
	if err != nil || p.Free {
		return a // if the plan was deleted, the operation reports it
	}
	o, err := h.Platform.Services.Offering(p.Offering)
	if err != nil {
		return a
	}
	a.Warnings = append(slices.Clone(a.Warnings), fmt.Sprintf("Attention: The plan `%s` of service offering `%s` is not free.  The instance `%s` will incur a cost.  "+
		"Contact your administrator if you think this is in error.", p.Name, o.Name, i.Name))
	return a
}

// checkServiceBody refuses fields that the type of a new service instance does not
// have.
func checkServiceBody(body v3.CreateServiceInstance) error {
	var foreign []string
	note := func(name string, given bool) {
		if given {
			foreign = append(foreign, name)
		}
	}
	switch body.Type {
	case v3.ServiceManaged:
		note("credentials", body.Credentials != nil)
		note("syslog_drain_url", body.SyslogDrainURL != "")
		note("route_service_url", body.RouteServiceURL != "")
		if body.Relationships.ServicePlan == nil {
			return rest.Unprocessable("Relationships 'service_plan' must be given: it names the plan of a managed service instance")
		}
	case v3.ServiceUserProvided:
		note("parameters", body.Parameters != nil)
		note("relationships.service_plan", body.Relationships.ServicePlan != nil)
	default:
		return rest.Unprocessable("Type must be one of 'managed', 'user-provided'")
	}
	if len(foreign) > 0 {
		return rest.Unprocessable("Unknown field(s): '%s' of a %s service instance", foreign[0], body.Type)
	}
	return nil
}

// planIsSeen refuses a plan that the caller cannot see.
func (h instanceHandlers) planIsSeen(r *http.Request, plan string) error {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return err
	}
	seen, err := h.Platform.Services.Plans(services.PlanFilter{GUIDs: []string{plan}, Viewer: viewer(perms)})
	if err == nil && len(seen) == 0 {
		err = rest.Unprocessable("Invalid service plan. Ensure that the service plan exists, is available, and you have access to it.")
	}
	return err
}

func (h instanceHandlers) updateService(r *http.Request) (any, error) {
	old, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.UpdateServiceInstance](r)
	if err != nil {
		return nil, err
	}
	c := services.InstanceChange{
		Name: body.Name, Tags: body.Tags, Parameters: body.Parameters, Credentials: body.Credentials,
		SyslogDrain: textOrNone(body.SyslogDrainURL), RouteService: textOrNone(body.RouteServiceURL),
		Metadata: platform.MetadataChange(body.Metadata), By: platform.ActorOf(r.Context()), SetBy: access.Origin(r.Context()),
	}
	if body.MaintenanceInfo != nil {
		c.Maintenance = &body.MaintenanceInfo.Version
	}
	if err := checkServiceChange(old, body); err != nil {
		return nil, err
	}
	if body.Relationships != nil {
		plan := body.Relationships.ServicePlan.ID()
		c.Plan = &plan
		if plan != old.Plan {
			if err := h.planIsSeen(r, plan); err != nil {
				return nil, err
			}
			if err := h.Platform.CheckPlan(old.Space, plan); err != nil {
				return nil, err
			}
		}
	}
	i, o, err := h.Platform.Services.UpdateInstance(old.GUID, c)
	if err != nil {
		return nil, rest.Missing("Service instance", err)
	}
	switch {
	case o.GUID == "":
		return h.presentService(i), nil
	case c.Plan != nil && *c.Plan != old.Plan:
		return h.withCost(h.begun(r.Context(), o), i, *c.Plan), nil
	}
	return h.begun(r.Context(), o), nil
}

// checkServiceChange refuses fields that the type of a service instance does not have.
func checkServiceChange(i services.Instance, body v3.UpdateServiceInstance) error {
	managed := body.Parameters != nil || body.MaintenanceInfo != nil || body.Relationships != nil
	provided := body.Credentials != nil || body.SyslogDrainURL.Given || body.RouteServiceURL.Given
	switch {
	case i.Type == services.UserProvided && managed:
		return rest.Unprocessable("Unknown field(s): a user-provided service instance has neither parameters, maintenance_info nor a service_plan")
	case i.Type == services.Managed && provided:
		return rest.Unprocessable("Unknown field(s): a managed service instance has neither credentials, syslog_drain_url nor route_service_url")
	}
	return nil
}

// textOrNone returns the text of a change; null is the empty text.
func textOrNone(n v3.Nullable[string]) *string {
	if !n.Given {
		return nil
	}
	return &n.Value
}

// deleteService removes a service instance and its bindings. With purge=true it does
// not call the broker.
func (h instanceHandlers) deleteService(r *http.Request) (any, error) {
	purge, err := readPurge(r)
	if err != nil {
		return nil, err
	}
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	if !purge {
		o, err := h.Platform.Services.DeleteInstance(i.GUID, platform.ActorOf(r.Context()))
		return h.ended(r.Context(), o, rest.Missing("Service instance", err))
	}
	if i.Type == services.Managed {
		p, err := h.Platform.Services.Plan(i.Plan)
		if err != nil {
			return nil, err
		}
		if err := h.administer(r.Context(), p.Broker); err != nil {
			return nil, err
		}
	}
	return h.ended(r.Context(), services.Operation{}, rest.Missing("Service instance", h.Platform.Services.PurgeInstance(i.GUID, platform.ActorOf(r.Context()))))
}

// getServiceCredentials returns the credentials of a user-provided service instance.
func (h instanceHandlers) getServiceCredentials(r *http.Request) (any, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	if i.Type != services.UserProvided {
		return nil, rest.NotFound("Service instance")
	}
	const noun = "user_provided_service_instance"
	target := app.Target{GUID: i.GUID, Type: noun, Name: i.Name}
	if err := h.recordService(r, "audit."+noun+".show", target, app.Event{Space: i.Space}); err != nil {
		return nil, err
	}
	return rest.OrObject(i.Credentials), nil
}

// getServiceParameters returns the parameters of an instance. The caller must have
// access to the instance's own space.
func (h instanceHandlers) getServiceParameters(r *http.Request) (any, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	if err := h.Access.Require(r.Context(), access.Read, i.Space); err != nil {
		if errors.Is(err, app.ErrNotFound) {
			err = access.ErrNotAuthorized // the caller sees it in a space that shares it
		}
		return nil, err
	}
	p, err := h.Platform.Services.Parameters(r.Context(), i.GUID)
	return rest.OrObject(p), err
}

// getServicePermissions returns the caller's permissions for an instance, for use by a
// dashboard.
func (h instanceHandlers) getServicePermissions(r *http.Request) (any, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	return v3.ServiceInstancePermissions{Read: perms.SeesService(i), Manage: perms.Can(access.Develop, i.Space) && !perms.Suspended(perms.OrgOf[i.Space])}, err
}

func (h *Handlers) presentService(i services.Instance) v3.ServiceInstance {
	self := h.Links.Href("v3", "service_instances", i.GUID)
	out := v3.ServiceInstance{
		GUID: i.GUID, CreatedAt: v3.At(i.CreatedAt), UpdatedAt: v3.At(i.UpdatedAt), Name: i.Name, Tags: rest.OrEmpty(i.Tags),
		Type: string(i.Type), LastOperation: presentLast(i.Last), Metadata: rest.PresentMetadata(i.Metadata),
		Relationships: v3.ServiceInstanceRelationships{ServicePlan: rest.OptionalToOne(i.Plan), Space: v3.To(i.Space)},
		Links: v3.Links{
			"self":                        {Href: self},
			"space":                       {Href: h.Links.Href("v3", "spaces", i.Space)},
			"service_credential_bindings": {Href: h.Links.Href("v3", "service_credential_bindings") + "?service_instance_guids=" + i.GUID},
			"service_route_bindings":      {Href: h.Links.Href("v3", "service_route_bindings") + "?service_instance_guids=" + i.GUID},
		},
	}
	if i.Type == services.UserProvided {
		// A URL can contain a secret, and all members of the space can read this.
		out.SyslogDrainURL, out.RouteServiceURL = orNull(droplet.WithoutSecret(i.SyslogDrain)), orNull(droplet.WithoutSecret(i.RouteService))
		out.Links["credentials"] = v3.Link{Href: self + "/credentials"}
		return out
	}
	upgrade := h.Platform.Services.Upgradable(i)
	out.DashboardURL, out.UpgradeAvailable = orNull(i.Dashboard), &upgrade
	out.MaintenanceInfo = &v3.MaintenanceInfo{Version: i.Maintenance}
	out.Links["service_plan"] = v3.Link{Href: h.Links.Href("v3", "service_plans", i.Plan)}
	out.Links["parameters"] = v3.Link{Href: self + "/parameters"}
	out.Links["shared_spaces"] = v3.Link{Href: self + "/relationships/shared_spaces"}
	return out
}

// orNull returns null for an empty text.
func orNull(text string) v3.Nullable[string] {
	if text == "" {
		return v3.SetNull[string]()
	}
	return v3.Set(text)
}
