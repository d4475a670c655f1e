package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// flagsEndpoints are the endpoints of this file.
func (s *Server) flagsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/feature_flags", Needs: access.Authenticated, Handler: s.listFlags, Shape: rest.PageOf[v3.FeatureFlag]()},
		{Pattern: "GET /v3/feature_flags/{name}", Needs: access.Authenticated, Handler: s.getFlag, Shape: rest.Returns[v3.FeatureFlag](200)},
		{
			Pattern: "PATCH /v3/feature_flags/{name}", Needs: access.Administer,
			Handler: s.updateFlag, Shape: rest.Returns[v3.FeatureFlag](200).Reads(rest.JSON[v3.UpdateFeatureFlag]()),
		},
	}
}

// forAll are the features that an administrator does without as well when they are
// off: as on the platform, where those who may switch them have to.
var forAll = []string{app.FlagEnvVisibility, app.FlagRouteSharing, app.FlagServiceSharing, app.FlagSpaceBrokers}

// feature refuses what an administrator has switched off. Administrators may do
// most of it all the same.
func (s *Server) feature(ctx context.Context, name string) error {
	if access.Principal(ctx).Admin() && !slices.Contains(forAll, name) {
		return nil
	}
	f, err := s.c.Registry.Flag(name)
	if err != nil || f.Enabled {
		return err
	}
	return featureDisabled(f)
}

func featureDisabled(f app.Flag) *rest.Error {
	why := f.Name
	if f.Message != "" {
		why = f.Message
	}
	return &rest.Error{Status: http.StatusForbidden, Code: 330002, Title: "CF-FeatureDisabled", Detail: "Feature Disabled: " + why}
}

func (s *Server) listFlags(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Flags()
	if err != nil {
		return nil, err
	}
	if q.OrderBy == "" {
		q.OrderBy = "name"
	}
	return rest.List(s.links, r, q, all, rest.View[app.Flag, v3.FeatureFlag]{
		Key: func(f app.Flag) rest.Key {
			return rest.Key{Name: f.Name, Created: f.UpdatedAt, Updated: f.UpdatedAt, GUID: f.Name}
		},
		Present: s.presentFlag,
	}), nil
}

// noFlag is how clients know that there is no such flag.
const noFlag = "Feature flag"

func (s *Server) getFlag(r *http.Request) (any, error) {
	f, err := s.c.Registry.Flag(r.PathValue("name"))
	if err != nil {
		return nil, rest.Missing(noFlag, err)
	}
	return s.presentFlag(f), nil
}

func (s *Server) updateFlag(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateFeatureFlag](r)
	if err != nil {
		return nil, err
	}
	f, err := s.c.Registry.UpdateFlag(r.PathValue("name"), func(f *app.Flag) {
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
	return s.presentFlag(f), nil
}

func (s *Server) presentFlag(f app.Flag) v3.FeatureFlag {
	out := v3.FeatureFlag{
		Name: f.Name, Enabled: f.Enabled,
		Links: v3.Links{"self": {Href: s.links.Href("v3", "feature_flags", f.Name)}},
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
