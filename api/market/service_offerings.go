package market

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// offeringHandlers answers requests about service offerings.
type offeringHandlers struct{ *Handlers }

func (h offeringHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_offerings", Needs: access.Authenticated, Open: true,
			Handler: h.listOfferings, Shape: rest.PageOf[v3.ServiceOffering]("names", "guids", "space_guids", "organization_guids", "available", "broker_catalog_ids", "service_broker_guids", "service_broker_names", FieldsOfBroker, rest.ParamSelector),
		},
		{
			Pattern: "GET /v3/service_offerings/{guid}", Needs: access.Authenticated, Open: true, // visible if one of its plans is
			Handler: h.getOffering, Shape: rest.Returns[v3.ServiceOffering](200).Query(FieldsOfBroker),
		},
		{
			Pattern: "PATCH /v3/service_offerings/{guid}", Needs: access.Authenticated, // depends on its broker
			Handler: h.updateOffering, Shape: rest.Returns[v3.ServiceOffering](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{Pattern: "DELETE /v3/service_offerings/{guid}", Needs: access.Authenticated, Handler: h.deleteOffering, Shape: rest.Empty(204).Query("purge")},
	}
}

func (h offeringHandlers) listOfferings(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	available, err := q.BoolFilter("available")
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Services.Offerings(services.OfferingFilter{
		GUIDs: q.Filters["guids"], Names: q.Filters["names"], IDs: q.Filters["broker_catalog_ids"], Available: available, Viewer: viewer(perms),
		Brokers: q.Filters["service_broker_guids"], BrokerNames: q.Filters["service_broker_names"],
		Orgs: q.Filters["organization_guids"], Spaces: q.Filters["space_guids"],
	})
	if err != nil {
		return nil, err
	}
	out := rest.List(h.Links, r, q, all, rest.View[services.Offering, v3.ServiceOffering]{
		Key: func(o services.Offering) rest.Key {
			return rest.Key{Name: o.Name, Created: o.CreatedAt, Updated: o.UpdatedAt, GUID: o.GUID}
		},
		Present: h.presentOffering,
		Labels:  func(o services.Offering) map[string]string { return o.Metadata.Labels },
	})
	b := serviceIncludes{brokers: rest.Values(out.Resources, func(o v3.ServiceOffering) string { return o.Relationships.ServiceBroker.ID() })}
	out.Included, err = h.serviceFields(q, b, FieldsOfBroker)
	return out, err
}

// offeringOf returns the offering that the path names, if the caller can see one of its
// plans.
func (h offeringHandlers) offeringOf(r *http.Request) (o services.Offering, err error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return o, err
	}
	if o, err = h.Platform.Services.Offering(r.PathValue("guid")); err != nil || perms.All {
		return o, rest.Missing("Service offering", err)
	}
	plans, err := h.seenPlans(perms, services.PlanFilter{Offerings: []string{o.GUID}})
	if err == nil && len(plans) == 0 {
		err = rest.NotFound("Service offering")
	}
	return o, err
}

func (h offeringHandlers) getOffering(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	o, err := h.offeringOf(r)
	if err != nil {
		return nil, err
	}
	out := h.presentOffering(o)
	out.Included, err = h.serviceFields(q, serviceIncludes{brokers: []string{o.Broker}}, FieldsOfBroker)
	return out, err
}

func (h offeringHandlers) updateOffering(r *http.Request) (any, error) {
	o, err := h.offeringOf(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	if err := h.administer(r.Context(), o.Broker); err != nil {
		return nil, rest.Missing("Service offering", err)
	}
	if o, err = h.Platform.Services.UpdateOfferingMetadata(o.GUID, platform.MetadataChange(body.Metadata)); err != nil {
		return nil, rest.Missing("Service offering", err)
	}
	return h.presentOffering(o), nil
}

// readPurge reports whether a resource is deleted without a call to its broker.
func readPurge(r *http.Request) (bool, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return false, err
	}
	purge, err := q.BoolFilter("purge")
	return purge != nil && *purge, err
}

// deleteOffering removes an offering. With purge=true it also removes all its instances
// and bindings, without a call to the broker.
func (h offeringHandlers) deleteOffering(r *http.Request) (any, error) {
	purge, err := readPurge(r)
	if err != nil {
		return nil, err
	}
	o, err := h.offeringOf(r)
	if err != nil {
		return nil, err
	}
	if err := h.administer(r.Context(), o.Broker); err != nil {
		return nil, rest.Missing("Service offering", err)
	}
	if purge {
		err = h.Platform.Services.PurgeOffering(o.GUID, platform.ActorOf(r.Context()))
	} else {
		err = h.Platform.Services.DeleteOffering(o.GUID)
	}
	if err != nil {
		return nil, rest.Missing("Service offering", err)
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

func (h *Handlers) presentOffering(o services.Offering) v3.ServiceOffering {
	out := v3.ServiceOffering{
		GUID: o.GUID, Name: o.Name, Description: o.Description, Available: o.Active,
		Tags: rest.OrEmpty(o.Tags), Requires: rest.OrEmpty(o.Requires), Shareable: o.Shareable,
		CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt),
		BrokerCatalog: v3.OfferingCatalog{ID: o.ID, Metadata: rest.OrObject(o.Catalog), Features: v3.OfferingFeatures{
			PlanUpdateable: o.PlanUpdateable, Bindable: o.Bindable, InstancesRetrievable: o.InstancesRetrievable,
			BindingsRetrievable: o.BindingsRetrievable, AllowContextUpdates: o.AllowContextUpdates,
		}},
		Relationships: v3.ServiceOfferingRelationships{ServiceBroker: v3.To(o.Broker)},
		Metadata:      rest.PresentMetadata(o.Metadata),
		Links: v3.Links{
			"self":           {Href: h.Links.Href("v3", "service_offerings", o.GUID)},
			"service_plans":  {Href: h.Links.Href("v3", "service_plans") + "?service_offering_guids=" + o.GUID},
			"service_broker": {Href: h.Links.Href("v3", "service_brokers", o.Broker)},
		},
	}
	if o.DocumentationURL != "" {
		out.DocumentationURL = &o.DocumentationURL
	}
	return out
}
