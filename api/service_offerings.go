package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/services"
)

// serviceOfferingsEndpoints are the endpoints of this file.
func (s *Server) serviceOfferingsEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/service_offerings", Needs: authenticated, Open: true,
			Handler: s.listOfferings, Shape: pageOf[v3.ServiceOffering]("names", "guids", "space_guids", "organization_guids", "available", "broker_catalog_ids", "service_broker_guids", "service_broker_names", fieldsOfBroker, paramSelector),
		},
		{
			Pattern: "GET /v3/service_offerings/{guid}", Needs: authenticated, Open: true, // who may have a plan of it sees it
			Handler: s.getOffering, Shape: gives[v3.ServiceOffering](200).ask(fieldsOfBroker),
		},
		{
			Pattern: "PATCH /v3/service_offerings/{guid}", Needs: authenticated, // it is its broker's
			Handler: s.updateOffering, Shape: gives[v3.ServiceOffering](200).from(jsonOf[v3.UpdateMetadata]()),
		},
		{Pattern: "DELETE /v3/service_offerings/{guid}", Needs: authenticated, Handler: s.deleteOffering, Shape: ends(204).ask("purge")},
	}
}

func (s *Server) listOfferings(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	available, err := q.truth("available")
	if err != nil {
		return nil, err
	}
	all, err := s.c.Services.Offerings(services.OfferingFilter{
		GUIDs: q.filters["guids"], Names: q.filters["names"], IDs: q.filters["broker_catalog_ids"], Available: available, Viewer: s.viewer(perms),
		Brokers: q.filters["service_broker_guids"], BrokerNames: q.filters["service_broker_names"],
		Orgs: q.filters["organization_guids"], Spaces: q.filters["space_guids"],
	})
	if err != nil {
		return nil, err
	}
	out := list(s.links, r, q, all, look[services.Offering, v3.ServiceOffering]{
		key:     func(o services.Offering) key { return key{o.Name, o.CreatedAt, o.UpdatedAt, o.GUID} },
		present: s.presentOffering,
		labels:  func(o services.Offering) map[string]string { return o.Metadata.Labels },
	})
	b := besideServices{brokers: each(out.Resources, func(o v3.ServiceOffering) string { return o.Relationships.ServiceBroker.ID() })}
	out.Included, err = s.serviceFields(q, b, fieldsOfBroker)
	return out, err
}

// truth reads a filter that is true or false; nil: it is not given.
func (q query) truth(name string) (*bool, error) {
	given := q.filters[name]
	if given == nil {
		return nil, nil
	}
	b, err := strconv.ParseBool(given[0])
	if err != nil || len(given) > 1 {
		return nil, badQuery("%s must be true or false", name)
	}
	return &b, nil
}

// offeringOf is the offering that the path names, if one of its plans is seen.
func (s *Server) offeringOf(r *http.Request) (o services.Offering, err error) {
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return o, err
	}
	if o, err = s.c.Services.Offering(r.PathValue("guid")); err != nil || perms.all {
		return o, missing("Service offering", err)
	}
	plans, err := s.seenPlans(perms, services.PlanFilter{Offerings: []string{o.GUID}})
	if err == nil && len(plans) == 0 {
		err = notFound("Service offering")
	}
	return o, err
}

func (s *Server) getOffering(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	o, err := s.offeringOf(r)
	if err != nil {
		return nil, err
	}
	out := s.presentOffering(o)
	out.Included, err = s.serviceFields(q, besideServices{brokers: []string{o.Broker}}, fieldsOfBroker)
	return out, err
}

func (s *Server) updateOffering(r *http.Request) (any, error) {
	o, err := s.offeringOf(r)
	if err != nil {
		return nil, err
	}
	body, err := decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	if err := s.administer(r.Context(), o.Broker); err != nil {
		return nil, missing("Service offering", err)
	}
	if o, err = s.c.Services.NoteOffering(o.GUID, metadataChange(body.Metadata)); err != nil {
		return nil, missing("Service offering", err)
	}
	return s.presentOffering(o), nil
}

// readPurge tells whether something is to be forgotten without a word to its broker.
func readPurge(r *http.Request) (bool, error) {
	q, err := readQuery(r)
	if err != nil {
		return false, err
	}
	purge, err := q.truth("purge")
	return purge != nil && *purge, err
}

// deleteOffering removes an offering; with purge=true all that anybody has of it,
// without a word to its broker.
func (s *Server) deleteOffering(r *http.Request) (any, error) {
	purge, err := readPurge(r)
	if err != nil {
		return nil, err
	}
	o, err := s.offeringOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.administer(r.Context(), o.Broker); err != nil {
		return nil, missing("Service offering", err)
	}
	if purge {
		err = s.c.Services.PurgeOffering(o.GUID, actor(r.Context()))
	} else {
		err = s.c.Services.DeleteOffering(o.GUID)
	}
	if err != nil {
		return nil, missing("Service offering", err)
	}
	return answer{status: http.StatusNoContent}, nil
}

func (s *Server) presentOffering(o services.Offering) v3.ServiceOffering {
	out := v3.ServiceOffering{
		GUID: o.GUID, Name: o.Name, Description: o.Description, Available: o.Active,
		Tags: orEmpty(o.Tags), Requires: orEmpty(o.Requires), Shareable: o.Shareable,
		CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt),
		BrokerCatalog: v3.OfferingCatalog{ID: o.ID, Metadata: orObject(o.Catalog), Features: v3.OfferingFeatures{
			PlanUpdateable: o.PlanUpdateable, Bindable: o.Bindable, InstancesRetrievable: o.InstancesRetrievable,
			BindingsRetrievable: o.BindingsRetrievable, AllowContextUpdates: o.AllowContextUpdates,
		}},
		Relationships: v3.ServiceOfferingRelationships{ServiceBroker: v3.To(o.Broker)},
		Metadata:      presentMetadata(o.Metadata),
		Links: v3.Links{
			"self":           {Href: s.links.Href("v3", "service_offerings", o.GUID)},
			"service_plans":  {Href: s.links.Href("v3", "service_plans") + "?service_offering_guids=" + o.GUID},
			"service_broker": {Href: s.links.Href("v3", "service_brokers", o.Broker)},
		},
	}
	if o.DocumentationURL != "" {
		out.DocumentationURL = &o.DocumentationURL
	}
	return out
}

// orObject is JSON that is not null.
func orObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}
