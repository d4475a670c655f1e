package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// serviceBrokersEndpoints are the endpoints of this file.
func (s *Server) serviceBrokersEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/service_brokers", Needs: authenticated,
			Handler: s.listBrokers, Shape: pageOf[v3.ServiceBroker]("names", "guids", "space_guids", paramSelector),
		},
		{
			Pattern: "POST /v3/service_brokers", Needs: authenticated, // the body may name a space
			Handler: s.createBroker, Shape: begins().from(jsonOf[v3.CreateServiceBroker]()),
		},
		{
			Pattern: "GET /v3/service_brokers/{guid}", Needs: authenticated, // some have a space, most have none
			Handler: s.getBroker, Shape: gives[v3.ServiceBroker](200),
		},
		{
			Pattern: "PATCH /v3/service_brokers/{guid}", Needs: authenticated,
			Handler: s.updateBroker, Shape: begins().or(gives[v3.ServiceBroker](200)).from(jsonOf[v3.UpdateServiceBroker]()),
		},
		{Pattern: "DELETE /v3/service_brokers/{guid}", Needs: authenticated, Handler: s.deleteBroker, Shape: begins().or(ends(204))},
	}
}

func (s *Server) listBrokers(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Services.Brokers(services.BrokerFilter{
		GUIDs: q.filters["guids"], Names: q.filters["names"], Spaces: q.filters["space_guids"],
	})
	if err != nil {
		return nil, err
	}
	var found []services.ServiceBroker
	for _, b := range all {
		if perms.broker(b) {
			found = append(found, b)
		}
	}
	return list(s.links, r, q, found, look[services.ServiceBroker, v3.ServiceBroker]{
		key:     func(b services.ServiceBroker) key { return key{b.Name, b.CreatedAt, b.UpdatedAt, b.GUID} },
		present: s.presentBroker,
		labels:  func(b services.ServiceBroker) map[string]string { return b.Metadata.Labels },
	}), nil
}

// broker tells whether a broker is seen: one of a space by those who develop or
// support there.
func (perms permissions) broker(b services.ServiceBroker) bool {
	return perms.all || b.Space != "" && perms.may(toSupport, b.Space)
}

// brokerOf is the broker that the path names, for a change: who sees its space is
// told that they may not.
func (s *Server) brokerOf(r *http.Request) (services.ServiceBroker, error) {
	b, perms, err := s.brokerAnd(r)
	if err == nil && !perms.all && (b.Space == "" || !perms.space(b.Space)) {
		err = services.ErrNotFound
	}
	return b, missing("Service broker", err)
}

// brokerAnd is that broker, and what who asks sees.
func (s *Server) brokerAnd(r *http.Request) (b services.ServiceBroker, perms permissions, err error) {
	if perms, err = s.access.permissions(r.Context()); err == nil {
		b, err = s.c.Services.Broker(r.PathValue("guid"))
	}
	return b, perms, err
}

func (s *Server) getBroker(r *http.Request) (any, error) {
	b, perms, err := s.brokerAnd(r)
	if err == nil && !perms.broker(b) {
		err = services.ErrNotFound
	}
	if err != nil {
		return nil, missing("Service broker", err)
	}
	return s.presentBroker(b), nil
}

// createBroker keeps a broker. Those that are for all are the administrators'.
func (s *Server) createBroker(r *http.Request) (any, error) {
	body, err := decode[v3.CreateServiceBroker](r)
	if err != nil {
		return nil, err
	}
	n := services.NewBroker{
		Name: body.Name, URL: body.URL, Username: body.Authentication.Credentials.Username,
		Password: body.Authentication.Credentials.Password,
		Metadata: app.Metadata{}.Merge(metadataChange(body.Metadata)), By: actor(r.Context()), SetBy: origin(r.Context()),
	}
	if body.Relationships.Space != nil {
		n.Space = body.Relationships.Space.ID()
		if err := s.access.require(r.Context(), toDevelop, n.Space); err != nil {
			return nil, invalidSpace(err)
		}
		if err := s.feature(r.Context(), app.FlagSpaceBrokers); err != nil {
			return nil, err
		}
	} else if !principal(r.Context()).Admin() {
		return nil, errNotAuthorized
	}
	if err := checkAuthentication(body.Authentication); err != nil {
		return nil, err
	}
	_, o, err := s.c.Services.CreateBroker(n)
	if err != nil {
		return nil, err
	}
	return s.begun(o), nil
}

func checkAuthentication(a v3.BrokerAuthentication) error {
	switch {
	case a.Type != v3.AuthenticationBasic:
		return unprocessable("Authentication authentication.type must be one of ['basic']")
	case a.Credentials.Username == "":
		return unprocessable("Authentication authentication.credentials.username must be a string")
	case a.Credentials.Password == "":
		return unprocessable("Authentication authentication.credentials.password must be a string")
	}
	return nil
}

func (s *Server) updateBroker(r *http.Request) (any, error) {
	b, err := s.brokerOf(r)
	if err != nil {
		return nil, err
	}
	body, err := decode[v3.UpdateServiceBroker](r)
	if err != nil {
		return nil, err
	}
	if err := s.administer(r.Context(), b.GUID); err != nil {
		return nil, missing("Service broker", err)
	}
	c := services.BrokerChange{Name: body.Name, URL: body.URL, Metadata: metadataChange(body.Metadata), By: actor(r.Context()), SetBy: origin(r.Context())}
	if body.Authentication != nil {
		if err := checkAuthentication(*body.Authentication); err != nil {
			return nil, err
		}
		c.Username, c.Password = &body.Authentication.Credentials.Username, &body.Authentication.Credentials.Password
	}
	b, o, err := s.c.Services.UpdateBroker(b.GUID, c)
	if err != nil {
		return nil, missing("Service broker", err)
	}
	if o.GUID == "" {
		return s.presentBroker(b), nil
	}
	return s.begun(o), nil
}

func (s *Server) deleteBroker(r *http.Request) (any, error) {
	b, err := s.brokerOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.administer(r.Context(), b.GUID); err != nil {
		return nil, missing("Service broker", err)
	}
	o, err := s.c.Services.DeleteBroker(b.GUID, actor(r.Context()))
	return s.ended(o, missing("Service broker", err))
}

// presentBroker shows a broker without its password. The built-in one has no URL:
// clients are given one that nobody can call.
func (s *Server) presentBroker(b services.ServiceBroker) v3.ServiceBroker {
	out := v3.ServiceBroker{
		GUID: b.GUID, Name: b.Name, URL: b.URL, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt),
		Relationships: v3.ServiceBrokerRelationships{Space: maybe(b.Space)},
		Metadata:      presentMetadata(b.Metadata),
		Links: v3.Links{
			"self":              {Href: s.links.Href("v3", "service_brokers", b.GUID)},
			"service_offerings": {Href: s.links.Href("v3", "service_offerings") + "?service_broker_guids=" + b.GUID},
		},
	}
	if b.Builtin() {
		out.URL = "builtin://" + b.Name
	}
	if b.Space != "" {
		out.Links["space"] = v3.Link{Href: s.links.Href("v3", "spaces", b.Space)}
	}
	return out
}
