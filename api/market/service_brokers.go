package market

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// brokerHandlers answers requests about service brokers.
type brokerHandlers struct{ *Handlers }

func (h brokerHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_brokers", Needs: access.Authenticated,
			Handler: h.listBrokers, Shape: rest.PageOf[v3.ServiceBroker]("names", "guids", "space_guids", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/service_brokers", Needs: access.Authenticated, // the body can name a space
			Handler: h.createBroker, Shape: rest.StartsJob().Reads(rest.JSON[v3.CreateServiceBroker]()),
		},
		{
			Pattern: "GET /v3/service_brokers/{guid}", Needs: access.Authenticated, // some brokers belong to a space
			Handler: h.getBroker, Shape: rest.Returns[v3.ServiceBroker](200),
		},
		{
			Pattern: "PATCH /v3/service_brokers/{guid}", Needs: access.Authenticated,
			Handler: h.updateBroker, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceBroker](200)).Reads(rest.JSON[v3.UpdateServiceBroker]()),
		},
		{Pattern: "DELETE /v3/service_brokers/{guid}", Needs: access.Authenticated, Handler: h.deleteBroker, Shape: rest.StartsJob().Or(rest.Empty(204))},
	}
}

func (h brokerHandlers) listBrokers(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Services.Brokers(services.BrokerFilter{
		GUIDs: q.Filters["guids"], Names: q.Filters["names"], Spaces: q.Filters["space_guids"],
	})
	if err != nil {
		return nil, err
	}
	var found []services.ServiceBroker
	for _, b := range all {
		if perms.SeesBroker(b) {
			found = append(found, b)
		}
	}
	return rest.List(h.Links, r, q, found, rest.View[services.ServiceBroker, v3.ServiceBroker]{
		Key: func(b services.ServiceBroker) rest.Key {
			return rest.Key{Name: b.Name, Created: b.CreatedAt, Updated: b.UpdatedAt, GUID: b.GUID}
		},
		Present: h.presentBroker,
		Labels:  func(b services.ServiceBroker) map[string]string { return b.Metadata.Labels },
	}), nil
}

// brokerOf returns the broker that the path names, for a change. A caller who can see
// its space gets 403 instead of 404.
func (h brokerHandlers) brokerOf(r *http.Request) (services.ServiceBroker, error) {
	b, perms, err := h.brokerAnd(r)
	if err == nil && !perms.All && (b.Space == "" || !perms.SeesSpace(b.Space)) {
		err = services.ErrNotFound
	}
	return b, rest.Missing("Service broker", err)
}

// brokerAnd returns that broker and the permissions of the caller.
func (h brokerHandlers) brokerAnd(r *http.Request) (b services.ServiceBroker, perms access.Permissions, err error) {
	if perms, err = h.Access.Permissions(r.Context()); err == nil {
		b, err = h.Platform.Services.Broker(r.PathValue("guid"))
	}
	return b, perms, err
}

func (h brokerHandlers) getBroker(r *http.Request) (any, error) {
	b, perms, err := h.brokerAnd(r)
	if err == nil && !perms.SeesBroker(b) {
		err = services.ErrNotFound
	}
	if err != nil {
		return nil, rest.Missing("Service broker", err)
	}
	return h.presentBroker(b), nil
}

// createBroker creates a broker. Only administrators can create one for all spaces.
func (h brokerHandlers) createBroker(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateServiceBroker](r)
	if err != nil {
		return nil, err
	}
	n := services.NewBroker{
		Name: body.Name, URL: body.URL, Username: body.Authentication.Credentials.Username,
		Password: body.Authentication.Credentials.Password,
		Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)), By: platform.ActorOf(r.Context()), SetBy: access.Origin(r.Context()),
	}
	if body.Relationships.Space != nil {
		n.Space = body.Relationships.Space.ID()
		if err := h.Access.Require(r.Context(), access.Develop, n.Space); err != nil {
			return nil, platform.InvalidSpace(err)
		}
		if err := h.Present.Feature(r.Context(), app.FlagSpaceBrokers); err != nil {
			return nil, err
		}
	} else if !access.Principal(r.Context()).Admin() {
		return nil, access.ErrNotAuthorized
	}
	if err := checkAuthentication(body.Authentication); err != nil {
		return nil, err
	}
	_, o, err := h.Platform.Services.CreateBroker(n)
	if err != nil {
		return nil, err
	}
	return h.begun(r.Context(), o), nil
}

func checkAuthentication(a v3.BrokerAuthentication) error {
	switch {
	case a.Type != v3.AuthenticationBasic:
		return rest.Unprocessable("Authentication authentication.type must be one of ['basic']")
	case a.Credentials.Username == "":
		return rest.Unprocessable("Authentication authentication.credentials.username must be a string")
	case a.Credentials.Password == "":
		return rest.Unprocessable("Authentication authentication.credentials.password must be a string")
	}
	return nil
}

func (h brokerHandlers) updateBroker(r *http.Request) (any, error) {
	b, err := h.brokerOf(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.UpdateServiceBroker](r)
	if err != nil {
		return nil, err
	}
	if err := h.administer(r.Context(), b.GUID); err != nil {
		return nil, rest.Missing("Service broker", err)
	}
	c := services.BrokerChange{Name: body.Name, URL: body.URL, Metadata: platform.MetadataChange(body.Metadata), By: platform.ActorOf(r.Context()), SetBy: access.Origin(r.Context())}
	if body.Authentication != nil {
		if err := checkAuthentication(*body.Authentication); err != nil {
			return nil, err
		}
		c.Username, c.Password = &body.Authentication.Credentials.Username, &body.Authentication.Credentials.Password
	}
	b, o, err := h.Platform.Services.UpdateBroker(b.GUID, c)
	if err != nil {
		return nil, rest.Missing("Service broker", err)
	}
	if o.GUID == "" {
		return h.presentBroker(b), nil
	}
	return h.begun(r.Context(), o), nil
}

func (h brokerHandlers) deleteBroker(r *http.Request) (any, error) {
	b, err := h.brokerOf(r)
	if err != nil {
		return nil, err
	}
	if err := h.administer(r.Context(), b.GUID); err != nil {
		return nil, rest.Missing("Service broker", err)
	}
	o, err := h.Platform.Services.DeleteBroker(b.GUID, platform.ActorOf(r.Context()))
	return h.ended(r.Context(), o, rest.Missing("Service broker", err))
}

// presentBroker shows a broker without its password. The built-in broker has no URL:
// clients get one that cannot be called.
func (h *Handlers) presentBroker(b services.ServiceBroker) v3.ServiceBroker {
	out := v3.ServiceBroker{
		GUID: b.GUID, Name: b.Name, URL: b.URL, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt),
		Relationships: v3.ServiceBrokerRelationships{Space: rest.OptionalToOne(b.Space)},
		Metadata:      rest.PresentMetadata(b.Metadata),
		Links: v3.Links{
			"self":              {Href: h.Links.Href("v3", "service_brokers", b.GUID)},
			"service_offerings": {Href: h.Links.Href("v3", "service_offerings") + "?service_broker_guids=" + b.GUID},
		},
	}
	if b.Builtin() {
		out.URL = "builtin://" + b.Name
	}
	if b.Space != "" {
		out.Links["space"] = v3.Link{Href: h.Links.Href("v3", "spaces", b.Space)}
	}
	return out
}
