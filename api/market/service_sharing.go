package market

import (
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

// sharingHandlers answers requests about the spaces that service instances are shared with.
type sharingHandlers struct{ *Handlers }

func (h sharingHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_instances/{guid}/relationships/shared_spaces", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.getSharedSpaces, Shape: rest.Returns[v3.SharedSpaces](200).Query(FieldsOfSpace, FieldsOfOrg),
		},
		{
			Pattern: "POST /v3/service_instances/{guid}/relationships/shared_spaces", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.shareService, Shape: rest.Returns[v3.SharedSpaces](200).Reads(rest.JSON[v3.ShareServiceInstance]()),
		},
		{
			Pattern: "DELETE /v3/service_instances/{guid}/relationships/shared_spaces/{space}", Needs: access.Develop, Resource: access.ServiceInstance,
			Handler: h.unshareService, Shape: rest.StartsJob().Or(rest.Empty(204)),
		},
		{
			Pattern: "GET /v3/service_instances/{guid}/relationships/shared_spaces/usage_summary", Needs: access.Read, Resource: access.ServiceInstance,
			Handler: h.getSharedUsage, Shape: rest.Returns[v3.UsageSummary](200),
		},
	}
}

func (h sharingHandlers) getSharedSpaces(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	out := h.presentShared(i)
	out.Included, err = h.serviceFields(q, serviceIncludes{spaces: i.SharedWith}, FieldsOfSpace, FieldsOfOrg)
	return out, err
}

func (h sharingHandlers) presentShared(i services.Instance) v3.SharedSpaces {
	out := v3.SharedSpaces{Data: []v3.GUID{}, Links: v3.Links{
		"self": {Href: h.Links.Href("v3", "service_instances", i.GUID, "relationships", "shared_spaces")},
	}}
	for _, space := range i.SharedWith {
		out.Data = append(out.Data, v3.GUID{GUID: space})
	}
	return out
}

// shareService shares a service instance with more spaces, whose apps can then be bound
// to it. The caller must be a developer in those spaces.
func (h sharingHandlers) shareService(r *http.Request) (any, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.ShareServiceInstance](r)
	if err != nil {
		return nil, err
	}
	if err := h.Present.Feature(r.Context(), app.FlagServiceSharing); err != nil {
		return nil, err
	}
	if len(body.Data) == 0 {
		return nil, rest.Unprocessable("Data must be a list of spaces such as [{\"guid\": \"…\"}]")
	}
	var spaces, unknown []string
	for _, d := range body.Data {
		err := h.Access.Require(r.Context(), access.Develop, d.GUID)
		switch {
		case errors.Is(err, app.ErrNotFound):
			unknown = append(unknown, d.GUID)
		case errors.Is(err, access.ErrNotAuthorized):
			return nil, rest.Unprocessable("Unable to share service instance %s with spaces ['%s']. Write permission is required in order to share a service instance with a space.", i.Name, d.GUID)
		case err != nil:
			return nil, err
		}
		spaces = append(spaces, d.GUID)
	}
	if len(unknown) > 0 {
		return nil, rest.Unprocessable("Unable to share service instance %s with spaces ['%s']. Ensure the spaces exist and that you have access to them.", i.Name, unknown[0])
	}
	if i, err = h.Platform.Services.Share(i.GUID, spaces, platform.ActorOf(r.Context())); err != nil {
		return nil, rest.Missing("Service instance", err)
	}
	return h.presentShared(i), nil
}

func (h sharingHandlers) unshareService(r *http.Request) (any, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	space := r.PathValue("space")
	if !slices.Contains(i.SharedWith, space) {
		return nil, rest.Unprocessable("Unable to unshare service instance from space %s. Ensure the space exists and the service instance has been shared to this space.", space)
	}
	err = h.Platform.Services.Unshare(i.GUID, space, platform.ActorOf(r.Context()))
	return h.ended(r.Context(), services.Operation{}, rest.Missing("Service instance", err))
}

func (h sharingHandlers) getSharedUsage(r *http.Request) (any, error) {
	i, err := h.Present.ServiceInstance(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Services.SharedUsage(i.GUID)
	if err != nil {
		return nil, err
	}
	at := h.Links.Href("v3", "service_instances", i.GUID)
	out := v3.UsageSummary{UsageSummary: []v3.SpaceUsage{}, Links: v3.Links{
		"self":             {Href: at + "/relationships/shared_spaces/usage_summary"},
		"shared_spaces":    {Href: at + "/relationships/shared_spaces"},
		"service_instance": {Href: at},
	}}
	for _, u := range all {
		out.UsageSummary = append(out.UsageSummary, v3.SpaceUsage{Space: v3.GUID{GUID: u.Space}, BoundAppCount: u.Apps})
	}
	return out, nil
}
