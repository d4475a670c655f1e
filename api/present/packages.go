package present

import (
	"context"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
)

// OfApps reads what belongs to apps: app by app where the query names some, else
// all at once.
func OfApps[T any](q rest.Query, apps map[string]app.App, one func(app string) ([]T, error), all func() ([]T, error)) ([]T, error) {
	if _, some := q.Filters["app_guids"]; !some {
		return all()
	}
	var out []T
	for guid := range apps {
		found, err := one(guid)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// AppInBody is an app that no right asked for, such as one in a body, if whoever asks may do it there.
func (p *Presenter) AppInBody(ctx context.Context, n access.Need, guid string) (app.App, error) {
	a, err := p.Platform.Registry.App(guid)
	if err != nil {
		return a, err
	}
	return a, p.Access.Require(ctx, n, a.Space)
}
