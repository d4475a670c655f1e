package api

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

// serviceBindingsEndpoints are the endpoints of this file.
func (s *Server) serviceBindingsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_credential_bindings", Needs: access.Authenticated,
			Handler: s.listCredentialBindings, Shape: rest.PageOf[v3.ServiceCredentialBinding]("names", "guids", "type", "app_guids", "app_names", "service_instance_guids", "service_instance_names", "service_plan_guids", "service_plan_names", "service_offering_guids", "service_offering_names", "include", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/service_credential_bindings", Needs: access.Authenticated, // the body names what is bound
			Handler: s.createCredentialBinding, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceCredentialBinding](201)).Reads(rest.JSON[v3.CreateCredentialBinding]()),
		},
		{
			Pattern: "GET /v3/service_credential_bindings/{guid}", Needs: access.Read, Resource: access.CredentialBinding,
			Handler: s.getCredentialBinding, Shape: rest.Returns[v3.ServiceCredentialBinding](200).Query("include"),
		},
		{
			Pattern: "PATCH /v3/service_credential_bindings/{guid}", Needs: access.Develop, Resource: access.CredentialBinding,
			Handler: s.updateCredentialBinding, Shape: rest.Returns[v3.ServiceCredentialBinding](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "DELETE /v3/service_credential_bindings/{guid}", Needs: access.Support, Resource: access.CredentialBinding, // keys are the developers'
			Handler: s.deleteServiceBinding, Shape: rest.StartsJob().Or(rest.Empty(204)),
		},
		{
			Pattern: "GET /v3/service_credential_bindings/{guid}/details", Needs: access.ReadSecrets, Resource: access.Credential,
			Handler: s.getBindingDetails, Shape: rest.Returns[v3.BindingDetails](200),
		},
		{
			Pattern: "GET /v3/service_credential_bindings/{guid}/parameters", Needs: access.Read, Resource: access.CredentialBinding,
			Handler: s.getBindingParameters, Shape: rest.Returns[json.RawMessage](200),
		},
		{
			Pattern: "DELETE /v3/service_route_bindings/{guid}", Needs: access.Support, Resource: access.RouteBinding,
			Handler: s.deleteServiceBinding, Shape: rest.StartsJob().Or(rest.Empty(204)),
		},
		{
			Pattern: "GET /v3/service_route_bindings/{guid}/parameters", Needs: access.ReadSecrets, Resource: access.RouteBinding,
			Handler: s.getBindingParameters, Shape: rest.Returns[json.RawMessage](200),
		},
	}
}

// credentialTypes are the types of credential bindings.
var credentialTypes = []services.BindingType{services.AppBinding, services.KeyBinding}

func (s *Server) listCredentialBindings(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.Includes("app", "service_instance")
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
	all, err := s.seenBindings(r, f)
	if err != nil {
		return nil, err
	}
	out := rest.List(s.links, r, q, all, rest.View[services.Binding, v3.ServiceCredentialBinding]{
		Key:     bindingKey,
		Present: s.presentCredentialBinding,
		Labels:  func(b services.Binding) map[string]string { return b.Metadata.Labels },
	})
	out.Included, err = s.besideBindings(asked, out.Resources)
	return out, err
}

func bindingKey(b services.Binding) rest.Key {
	return rest.Key{Name: b.Name, Created: b.CreatedAt, Updated: b.UpdatedAt, GUID: b.GUID}
}

// seenBindings are the bindings that the filter chooses and who asks sees.
func (s *Server) seenBindings(r *http.Request, f services.BindingFilter) ([]services.Binding, error) {
	perms, err := s.access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Services.Bindings(f)
	if err != nil {
		return nil, err
	}
	var seen []services.Binding
	for _, b := range all {
		space, err := s.access.BindingSpace(b)
		if err != nil && !platform.IsNotFound(err) {
			return nil, err
		}
		if err == nil && perms.SeesSpace(space) {
			seen = append(seen, b)
		}
	}
	return seen, nil
}

// besideBindings is what the request wants to see beside bindings.
func (s *Server) besideBindings(asked map[string]bool, all []v3.ServiceCredentialBinding) (map[string]any, error) {
	if len(asked) == 0 {
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
	if asked["app"] {
		if out["apps"], err = rest.PresentEach(apps, s.c.Registry.App, s.presentApp); err != nil {
			return nil, err
		}
	}
	if asked["service_instance"] {
		out["service_instances"], err = rest.PresentEach(instances, s.c.Services.Instance, s.presentService)
	}
	return out, err
}

// serviceBindingOf is the binding that the path names; the guard knows its type.
func (s *Server) serviceBindingOf(r *http.Request) (services.Binding, error) {
	b, err := s.c.Services.Binding(r.PathValue("guid"))
	return b, rest.Missing("Service binding", err)
}

func (s *Server) getCredentialBinding(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.Includes("app", "service_instance")
	if err != nil {
		return nil, err
	}
	b, err := s.serviceBindingOf(r)
	if err != nil {
		return nil, err
	}
	out := s.presentCredentialBinding(b)
	out.Included, err = s.besideBindings(asked, []v3.ServiceCredentialBinding{out})
	return out, err
}

func (s *Server) createCredentialBinding(r *http.Request) (any, error) {
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
	if err := s.bindable(r, &n, body.Relationships.App); err != nil {
		return nil, err
	}
	return s.bind(n)
}

// bindable refuses a binding whose ends who asks does not see, or may not bind.
func (s *Server) bindable(r *http.Request, n *services.NewBinding, to *v3.ToOne) error {
	i, err := s.seenInstance(r, n.Instance)
	if err != nil {
		return err
	}
	switch n.Type {
	case services.KeyBinding:
		if to != nil {
			return rest.Unprocessable("Unknown field(s): 'relationships.app' of a key")
		}
		return s.access.Require(r.Context(), access.Develop, i.Space)
	case services.AppBinding:
		if to == nil {
			return rest.Unprocessable("Relationships 'app' must be given: it names the app that is to be bound")
		}
	default:
		return rest.Unprocessable("Type must be one of 'app', 'key'")
	}
	n.App = to.ID()
	a, err := s.c.Registry.App(n.App)
	if err == nil {
		err = s.access.Require(r.Context(), access.Support, a.Space)
	}
	if errors.Is(err, app.ErrNotFound) {
		return rest.Unprocessable("The app could not be found: '%s'", n.App)
	}
	return err
}

// seenInstance is the service instance that a body names.
func (s *Server) seenInstance(r *http.Request, guid string) (services.Instance, error) {
	perms, err := s.access.Permissions(r.Context())
	if err != nil {
		return services.Instance{}, err
	}
	i, err := s.c.Services.Instance(guid)
	if err == nil && !perms.SeesService(i) {
		err = services.ErrNotFound
	}
	if platform.IsNotFound(err) {
		return i, rest.Unprocessable("The service instance could not be found: '%s'", guid)
	}
	return i, err
}

// bind keeps a binding and tells of it.
func (s *Server) bind(n services.NewBinding) (any, error) {
	b, o, err := s.c.Services.CreateBinding(n)
	switch {
	case err != nil:
		return nil, err
	case o.GUID != "":
		return s.begun(o), nil
	case b.Type == services.RouteBinding:
		return rest.Answer{Status: http.StatusCreated, Body: s.presentRouteBinding(b)}, nil
	}
	return rest.Answer{Status: http.StatusCreated, Body: s.presentCredentialBinding(b)}, nil
}

func (s *Server) updateCredentialBinding(r *http.Request) (any, error) {
	b, err := s.noteBinding(r)
	if err != nil {
		return nil, err
	}
	return s.presentCredentialBinding(b), nil
}

func (s *Server) noteBinding(r *http.Request) (b services.Binding, err error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return b, err
	}
	if b, err = s.c.Services.NoteBinding(r.PathValue("guid"), platform.MetadataChange(body.Metadata)); err != nil {
		return b, rest.Missing("Service binding", err)
	}
	return b, s.recordBinding(r, "update", b, map[string]any{"request": body})
}

// deleteServiceBinding removes a binding. A key is handed out by developers, and only
// they take it back.
func (s *Server) deleteServiceBinding(r *http.Request) (any, error) {
	b, err := s.c.Services.Binding(r.PathValue("guid"))
	if err == nil && b.Type == services.KeyBinding {
		err = s.demandAt(r.Context(), access.Develop, b)
	}
	if err != nil {
		return nil, rest.Missing("Service credential binding", err)
	}
	o, err := s.c.Services.DeleteBinding(r.PathValue("guid"), platform.ActorOf(r.Context()))
	return s.ended(o, rest.Missing("Service binding", err))
}

// demandAt asks for a need where a binding belongs.
func (s *Server) demandAt(ctx context.Context, n access.Need, b services.Binding) error {
	space, err := s.access.BindingSpace(b)
	if err != nil {
		return err
	}
	return s.access.Require(ctx, n, space)
}

// getBindingDetails tells the credentials of a binding, and that they were told.
func (s *Server) getBindingDetails(r *http.Request) (any, error) {
	b, err := s.serviceBindingOf(r)
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
	if err := s.recordBinding(r, "show", b, map[string]any{"request": request}); err != nil {
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

// recordBinding records what somebody did to a binding, or was shown of it.
func (s *Server) recordBinding(r *http.Request, what string, b services.Binding, data map[string]any) error {
	space, err := s.access.BindingSpace(b)
	if err != nil {
		return err
	}
	noun := map[services.BindingType]string{
		services.AppBinding: "service_binding", services.KeyBinding: "service_key", services.RouteBinding: "service_route_binding",
	}[b.Type]
	return s.recordService(r, "audit."+noun+"."+what, app.Target{GUID: b.GUID, Type: noun, Name: b.Name}, app.Event{Space: space, Data: data})
}

// recordService records what was done to something in a space that services keep; e
// has where and what.
func (s *Server) recordService(r *http.Request, kind string, target app.Target, e app.Event) error {
	return s.platform.Change(r.Context(), func(w platform.Tx) error {
		e.Type, e.Actor, e.Target = kind, w.Actor, target
		if sp, err := w.Registry.Space(e.Space); err == nil {
			e.Org = sp.Org
		}
		return w.Events.Record(e)
	})
}

func (s *Server) getBindingParameters(r *http.Request) (any, error) {
	p, err := s.c.Services.BindingParameters(r.Context(), r.PathValue("guid"))
	return rest.OrObject(p), rest.Missing("Service binding", err)
}

func (s *Server) presentCredentialBinding(b services.Binding) v3.ServiceCredentialBinding {
	self := s.links.Href("v3", "service_credential_bindings", b.GUID)
	out := v3.ServiceCredentialBinding{
		GUID: b.GUID, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt), Type: string(b.Type),
		LastOperation: presentLast(b.Last), Metadata: rest.PresentMetadata(b.Metadata),
		Relationships: v3.CredentialBindingRelationships{App: rest.Maybe(b.App), ServiceInstance: v3.To(b.Instance)},
		Links: v3.Links{
			"self": {Href: self}, "details": {Href: self + "/details"}, "parameters": {Href: self + "/parameters"},
			"service_instance": {Href: s.links.Href("v3", "service_instances", b.Instance)},
		},
	}
	if b.Name != "" {
		out.Name = &b.Name
	}
	if b.App != "" {
		out.Links["app"] = v3.Link{Href: s.links.Href("v3", "apps", b.App)}
	}
	return out
}
