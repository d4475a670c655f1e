package market

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// bindingHandlers answers requests about service bindings of apps and routes, and about
// service keys.
type bindingHandlers struct{ *Handlers }

func (h bindingHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_credential_bindings", Needs: access.Authenticated,
			Handler: h.listCredentialBindings, Shape: rest.PageOf[v3.ServiceCredentialBinding]("names", "guids", "type", "app_guids", "app_names", "service_instance_guids", "service_instance_names", "service_plan_guids", "service_plan_names", "service_offering_guids", "service_offering_names", "include", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/service_credential_bindings", Needs: access.Authenticated, // the body names the instance and the app
			Handler: h.createCredentialBinding, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceCredentialBinding](201)).Reads(rest.JSON[v3.CreateCredentialBinding]()),
		},
		{
			Pattern: "GET /v3/service_credential_bindings/{guid}", Needs: access.Read, Resource: access.CredentialBinding,
			Handler: h.getCredentialBinding, Shape: rest.Returns[v3.ServiceCredentialBinding](200).Query("include"),
		},
		{
			Pattern: "PATCH /v3/service_credential_bindings/{guid}", Needs: access.Develop, Resource: access.CredentialBinding,
			Handler: h.updateCredentialBinding, Shape: rest.Returns[v3.ServiceCredentialBinding](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "DELETE /v3/service_credential_bindings/{guid}", Needs: access.Support, Resource: access.CredentialBinding, // only developers delete keys
			Handler: h.deleteServiceBinding, Shape: rest.StartsJob().Or(rest.Empty(204)),
		},
		{
			Pattern: "GET /v3/service_credential_bindings/{guid}/details", Needs: access.ReadSecrets, Resource: access.Credential,
			Handler: h.getBindingDetails, Shape: rest.Returns[v3.BindingDetails](200),
		},
		{
			Pattern: "GET /v3/service_credential_bindings/{guid}/parameters", Needs: access.Read, Resource: access.CredentialBinding,
			Handler: h.getBindingParameters, Shape: rest.Returns[json.RawMessage](200),
		},
		{
			Pattern: "DELETE /v3/service_route_bindings/{guid}", Needs: access.Support, Resource: access.RouteBinding,
			Handler: h.deleteServiceBinding, Shape: rest.StartsJob().Or(rest.Empty(204)),
		},
		{
			Pattern: "GET /v3/service_route_bindings/{guid}/parameters", Needs: access.ReadSecrets, Resource: access.RouteBinding,
			Handler: h.getBindingParameters, Shape: rest.Returns[json.RawMessage](200),
		},
	}
}

// credentialTypes are the types of credential bindings.
var credentialTypes = []services.BindingType{services.AppBinding, services.KeyBinding}

func (h bindingHandlers) listCredentialBindings(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes("app", "service_instance")
	if err != nil {
		return nil, err
	}
	f := services.BindingFilter{
		GUIDs: q.Filters["guids"], Names: q.Filters["names"], Types: credentialTypes,
		Apps: q.Filters["app_guids"], AppNames: q.Filters["app_names"],
		Instances: q.Filters["service_instance_guids"], InstanceNames: q.Filters["service_instance_names"],
		Plans: q.Filters["service_plan_guids"], PlanNames: q.Filters["service_plan_names"],
		Offerings: q.Filters["service_offering_guids"], OfferingNames: q.Filters["service_offering_names"],
	}
	if kind := q.Filters["type"]; kind != nil {
		if len(kind) > 1 || kind[0] != v3.BindingApp && kind[0] != v3.BindingKey {
			return nil, rest.BadQuery("Type must be one of 'app', 'key'")
		}
		f.Types = []services.BindingType{services.BindingType(kind[0])}
	}
	all, err := h.seenBindings(r, f)
	if err != nil {
		return nil, err
	}
	out := rest.List(h.Links, r, q, all, rest.View[services.Binding, v3.ServiceCredentialBinding]{
		Key:     bindingKey,
		Present: h.presentCredentialBinding,
		Labels:  func(b services.Binding) map[string]string { return b.Metadata.Labels },
	})
	out.Included, err = h.bindingIncludes(requested, out.Resources)
	return out, err
}

func bindingKey(b services.Binding) rest.Key {
	return rest.Key{Name: b.Name, Created: b.CreatedAt, Updated: b.UpdatedAt, GUID: b.GUID}
}

// seenBindings returns the bindings that match the filter and that the caller can see.
func (h bindingHandlers) seenBindings(r *http.Request, f services.BindingFilter) ([]services.Binding, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Services.Bindings(f)
	if err != nil {
		return nil, err
	}
	var seen []services.Binding
	for _, b := range all {
		space, err := h.Access.BindingSpace(b)
		if err != nil && !platform.IsNotFound(err) {
			return nil, err
		}
		if err == nil && perms.SeesSpace(space) {
			seen = append(seen, b)
		}
	}
	return seen, nil
}

// bindingIncludes returns the resources that the request includes with bindings.
func (h bindingHandlers) bindingIncludes(requested map[string]bool, all []v3.ServiceCredentialBinding) (map[string]any, error) {
	if len(requested) == 0 {
		return nil, nil
	}
	var apps, instances []string
	for _, b := range all {
		instances = append(instances, b.Relationships.ServiceInstance.ID())
		if b.Relationships.App != nil {
			apps = append(apps, b.Relationships.App.ID())
		}
	}
	out := map[string]any{}
	var err error
	if requested["app"] {
		if out["apps"], err = rest.PresentEach(apps, h.Platform.Registry.App, h.Present.ShowApp); err != nil {
			return nil, err
		}
	}
	if requested["service_instance"] {
		out["service_instances"], err = rest.PresentEach(instances, h.Platform.Services.Instance, h.presentService)
	}
	return out, err
}

// serviceBindingOf returns the binding that the path names; the guard has checked its
// type.
func (h bindingHandlers) serviceBindingOf(r *http.Request) (services.Binding, error) {
	b, err := h.Platform.Services.Binding(r.PathValue("guid"))
	return b, rest.Missing("Service binding", err)
}

func (h bindingHandlers) getCredentialBinding(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes("app", "service_instance")
	if err != nil {
		return nil, err
	}
	b, err := h.serviceBindingOf(r)
	if err != nil {
		return nil, err
	}
	out := h.presentCredentialBinding(b)
	out.Included, err = h.bindingIncludes(requested, []v3.ServiceCredentialBinding{out})
	return out, err
}

func (h bindingHandlers) createCredentialBinding(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateCredentialBinding](r)
	if err != nil {
		return nil, err
	}
	n := services.NewBinding{
		Type: services.BindingType(body.Type), Name: body.Name, Instance: body.Relationships.ServiceInstance.ID(),
		Parameters: body.Parameters, Multiple: body.Strategy == v3.StrategyMultiple,
		Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)), By: platform.ActorOf(r.Context()),
	}
	if !slices.Contains([]string{"", v3.StrategySingle, v3.StrategyMultiple}, body.Strategy) {
		return nil, rest.Unprocessable("Strategy must be one of 'single', 'multiple'")
	}
	if err := h.bindable(r, &n, body.Relationships.App); err != nil {
		return nil, err
	}
	return h.bind(r.Context(), n)
}

// bindable refuses a binding if the caller cannot see its instance or app, or lacks the
// permission to bind them.
func (h bindingHandlers) bindable(r *http.Request, n *services.NewBinding, to *v3.ToOne) error {
	i, err := h.seenInstance(r, n.Instance)
	if err != nil {
		return err
	}
	switch n.Type {
	case services.KeyBinding:
		if to != nil {
			return rest.Unprocessable("Unknown field(s): 'relationships.app' of a key")
		}
		return h.Access.Require(r.Context(), access.Develop, i.Space)
	case services.AppBinding:
		if to == nil {
			return rest.Unprocessable("Relationships 'app' must be given: it names the app to bind")
		}
	default:
		return rest.Unprocessable("Type must be one of 'app', 'key'")
	}
	n.App = to.ID()
	a, err := h.Platform.Registry.App(n.App)
	if err == nil {
		err = h.Access.Require(r.Context(), access.Support, a.Space)
	}
	if errors.Is(err, app.ErrNotFound) {
		return rest.Unprocessable("The app could not be found: '%s'", n.App)
	}
	return err
}

// seenInstance returns the service instance that a body names, if the caller can see
// it.
func (h bindingHandlers) seenInstance(r *http.Request, guid string) (services.Instance, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return services.Instance{}, err
	}
	i, err := h.Platform.Services.Instance(guid)
	if err == nil && !perms.SeesService(i) {
		err = services.ErrNotFound
	}
	if platform.IsNotFound(err) {
		return i, rest.Unprocessable("The service instance could not be found: '%s'", guid)
	}
	return i, err
}

// bind creates a binding and returns the response.
func (h bindingHandlers) bind(ctx context.Context, n services.NewBinding) (any, error) {
	b, o, err := h.Platform.CreateBinding(n)
	switch {
	case err != nil:
		return nil, err
	case o.GUID != "":
		return h.begun(ctx, o), nil
	case b.Type == services.RouteBinding:
		return rest.Answer{Status: http.StatusCreated, Body: h.PresentRouteBinding(b)}, nil
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentCredentialBinding(b)}, nil
}

func (h bindingHandlers) updateCredentialBinding(r *http.Request) (any, error) {
	b, err := h.noteBinding(r)
	if err != nil {
		return nil, err
	}
	return h.presentCredentialBinding(b), nil
}

func (h bindingHandlers) noteBinding(r *http.Request) (b services.Binding, err error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return b, err
	}
	if b, err = h.Platform.Services.UpdateBindingMetadata(r.PathValue("guid"), platform.MetadataChange(body.Metadata)); err != nil {
		return b, rest.Missing("Service binding", err)
	}
	return b, h.recordBinding(r, "update", b, map[string]any{"request": body})
}

// deleteServiceBinding removes a binding. Only developers can delete a service key, as
// only they can create one.
func (h bindingHandlers) deleteServiceBinding(r *http.Request) (any, error) {
	b, err := h.Platform.Services.Binding(r.PathValue("guid"))
	if err == nil && b.Type == services.KeyBinding {
		err = h.demandAt(r.Context(), access.Develop, b)
	}
	if err != nil {
		return nil, rest.Missing("Service credential binding", err)
	}
	o, err := h.Platform.Services.DeleteBinding(r.PathValue("guid"), platform.ActorOf(r.Context()))
	return h.ended(r.Context(), o, rest.Missing("Service binding", err))
}

// demandAt checks whether the caller has a permission in the space of a binding.
func (h bindingHandlers) demandAt(ctx context.Context, n access.Need, b services.Binding) error {
	space, err := h.Access.BindingSpace(b)
	if err != nil {
		return err
	}
	return h.Access.Require(ctx, n, space)
}

// getBindingDetails shows the credentials of a binding and records that they were read.
func (h bindingHandlers) getBindingDetails(r *http.Request) (any, error) {
	b, err := h.serviceBindingOf(r)
	if err != nil {
		return nil, err
	}
	if b.Last.Type == services.Create && b.Last.State != services.Succeeded {
		state := "in progress"
		if b.Last.State == services.Failed {
			state = "failed"
		}
		return nil, &rest.Error{
			Status: http.StatusNotFound, Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: "Creation of credential binding " + state,
		}
	}
	request := map[string]any{"service_instance_guid": b.Instance}
	if b.App != "" {
		request["app_guid"] = b.App
	}
	if err := h.recordBinding(r, "show", b, map[string]any{"request": request}); err != nil {
		return nil, err
	}
	out := v3.BindingDetails{Credentials: rest.OrObject(b.Credentials), VolumeMounts: b.VolumeMounts}
	if len(out.VolumeMounts) == 0 {
		out.VolumeMounts = json.RawMessage("[]")
	}
	if b.SyslogDrain != "" {
		out.SyslogDrainURL = &b.SyslogDrain
	}
	return out, nil
}

// recordBinding records a change of a binding, or that it was read.
func (h bindingHandlers) recordBinding(r *http.Request, what string, b services.Binding, data map[string]any) error {
	space, err := h.Access.BindingSpace(b)
	if err != nil {
		return err
	}
	noun := map[services.BindingType]string{
		services.AppBinding: "service_binding", services.KeyBinding: "service_key", services.RouteBinding: "service_route_binding",
	}[b.Type]
	return h.recordService(r, "audit."+noun+"."+what, app.Target{GUID: b.GUID, Type: noun, Name: b.Name}, app.Event{Space: space, Data: data})
}

// recordService records an event about a service resource in a space; e holds the space
// and the data.
func (h *Handlers) recordService(r *http.Request, kind string, target app.Target, e app.Event) error {
	return h.Platform.Change(r.Context(), func(w platform.Tx) error {
		e.Type, e.Actor, e.Target = kind, w.Actor, target
		if sp, err := w.Registry.Space(e.Space); err == nil {
			e.Org = sp.Org
		}
		return w.Events.Record(e)
	})
}

func (h bindingHandlers) getBindingParameters(r *http.Request) (any, error) {
	p, err := h.Platform.Services.BindingParameters(r.Context(), r.PathValue("guid"))
	return rest.OrObject(p), rest.Missing("Service binding", err)
}

func (h bindingHandlers) presentCredentialBinding(b services.Binding) v3.ServiceCredentialBinding {
	self := h.Links.Href("v3", "service_credential_bindings", b.GUID)
	out := v3.ServiceCredentialBinding{
		GUID: b.GUID, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt), Type: string(b.Type),
		LastOperation: presentLast(b.Last), Metadata: rest.PresentMetadata(b.Metadata),
		Relationships: v3.CredentialBindingRelationships{App: rest.OptionalToOne(b.App), ServiceInstance: v3.To(b.Instance)},
		Links: v3.Links{
			"self": {Href: self}, "details": {Href: self + "/details"}, "parameters": {Href: self + "/parameters"},
			"service_instance": {Href: h.Links.Href("v3", "service_instances", b.Instance)},
		},
	}
	if b.Name != "" {
		out.Name = &b.Name
	}
	if b.App != "" {
		out.Links["app"] = v3.Link{Href: h.Links.Href("v3", "apps", b.App)}
	}
	return out
}
