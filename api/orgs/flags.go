package orgs

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// flagHandlers answers requests about feature flags.
type flagHandlers struct{ *Handlers }

func (h flagHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/feature_flags", Needs: access.Authenticated, Handler: h.listFlags, Shape: rest.PageOf[v3.FeatureFlag]()},
		{Pattern: "GET /v3/feature_flags/{name}", Needs: access.Authenticated, Handler: h.getFlag, Shape: rest.Returns[v3.FeatureFlag](200)},
		{
			Pattern: "PATCH /v3/feature_flags/{name}", Needs: access.Administer,
			Handler: h.updateFlag, Shape: rest.Returns[v3.FeatureFlag](200).Reads(rest.JSON[v3.UpdateFeatureFlag]()),
		},
	}
}

func (h flagHandlers) listFlags(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Flags()
	if err != nil {
		return nil, err
	}
	if q.OrderBy == "" {
		q.OrderBy = "name"
	}
	return rest.List(h.Links, r, q, all, rest.View[app.Flag, v3.FeatureFlag]{
		Key: func(f app.Flag) rest.Key {
			return rest.Key{Name: f.Name, Created: f.UpdatedAt, Updated: f.UpdatedAt, GUID: f.Name}
		},
		Present: h.presentFlag,
	}), nil
}

// noFlag is the name in the 404 response for an unknown flag. Clients check for it.
const noFlag = "Feature flag"

func (h flagHandlers) getFlag(r *http.Request) (any, error) {
	f, err := h.Platform.Registry.Flag(r.PathValue("name"))
	if err != nil {
		return nil, rest.Missing(noFlag, err)
	}
	return h.presentFlag(f), nil
}

func (h flagHandlers) updateFlag(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateFeatureFlag](r)
	if err != nil {
		return nil, err
	}
	f, err := h.Platform.Registry.UpdateFlag(r.PathValue("name"), func(f *app.Flag) {
		if body.Enabled != nil {
			f.Enabled = *body.Enabled
		}
		if body.Message.Given {
			f.Message = body.Message.Value
		}
	})
	if err != nil {
		return nil, rest.Missing(noFlag, err)
	}
	return h.presentFlag(f), nil
}

func (h flagHandlers) presentFlag(f app.Flag) v3.FeatureFlag {
	out := v3.FeatureFlag{
		Name: f.Name, Enabled: f.Enabled,
		Links: v3.Links{"self": {Href: h.Links.Href("v3", "feature_flags", f.Name)}},
	}
	if !f.UpdatedAt.IsZero() {
		at := v3.At(f.UpdatedAt)
		out.UpdatedAt = &at
	}
	if f.Message != "" {
		out.Message = &f.Message
	}
	return out
}
