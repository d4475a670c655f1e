package present

import (
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/platform"
)

// People are all whom the platform knows, by guid: users that were not deleted
// here, and clients that were made known or that have a role.
func (p *Presenter) People() (map[string]platform.Person, error) {
	records, err := p.Platform.Registry.Users()
	if err != nil {
		return nil, err
	}
	out, gone := map[string]platform.Person{}, map[string]bool{}
	for _, u := range records {
		if gone[u.GUID] = u.Gone; !u.Gone {
			out[u.GUID] = platform.Person{GUID: u.GUID, Metadata: u.Metadata, Created: u.CreatedAt, Updated: u.UpdatedAt}
		}
	}
	roles, err := p.Platform.Roles.All()
	if err != nil {
		return nil, err
	}
	for _, role := range roles {
		if _, known := out[role.User]; !known {
			out[role.User] = platform.Person{GUID: role.User, Created: role.CreatedAt, Updated: role.UpdatedAt}
		}
	}
	users, err := p.Platform.Auth.Accounts().Users()
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		p, known := out[u.GUID]
		if !known && gone[u.GUID] {
			continue
		}
		if !known {
			p = platform.Person{GUID: u.GUID, Updated: u.UpdatedAt}
		}
		p.Name, p.Origin, p.Created = u.Name, u.Origin, u.CreatedAt
		out[u.GUID] = p
	}
	return out, nil
}

func (p *Presenter) ShowUser(u platform.Person) v3.User {
	out := v3.User{
		GUID: u.GUID, CreatedAt: v3.At(u.Created), UpdatedAt: v3.At(u.Updated), PresentationName: u.Called(),
		Metadata: rest.PresentMetadata(u.Metadata), Links: v3.Links{"self": {Href: p.Links.Href("v3", "users", u.GUID)}},
	}
	if u.Name != "" {
		out.Username, out.Origin = &u.Name, &u.Origin
	}
	return out
}
