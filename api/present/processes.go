package present

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// VisibleApps are the apps that the request may know of and that the query's filters
// for apps, spaces and orgs let through, by guid.
func (p *Presenter) VisibleApps(r *http.Request, q rest.Query) (map[string]app.App, error) {
	perms, err := p.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	apps, err := p.Platform.Registry.Apps()
	if err != nil {
		return nil, err
	}
	orgs, err := p.Platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	out := map[string]app.App{}
	for _, a := range apps {
		if perms.SeesSpace(a.Space) && q.Matches("app_guids", a.GUID) && q.Matches("space_guids", a.Space) && q.Matches("organization_guids", orgs[a.Space]) {
			out[a.GUID] = a
		}
	}
	return out, nil
}

// Secrets tells of an app whether who asks may read its secrets. Commands are
// among them: they carry passwords.
func (p *Presenter) Secrets(r *http.Request) (func(app string) bool, error) {
	perms, err := p.Access.Permissions(r.Context())
	return func(guid string) bool {
		if perms.Secrets {
			return true
		}
		a, err := p.Platform.Registry.App(guid)
		return err == nil && perms.Can(access.ReadSecrets, a.Space)
	}, err
}

// Concealed is a secret as it is shown.
func Concealed(text string, open bool) string {
	if open {
		return text
	}
	return platform.Hidden
}
