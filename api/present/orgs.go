package present

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
)

// Org returns the org that the path names.
func (p *Presenter) Org(r *http.Request) (app.Org, error) {
	o, err := p.Platform.Registry.Org(r.PathValue("guid"))
	return o, rest.Missing("Organization", err)
}

// ShowOrg returns an org as responses show it.
func (p *Presenter) ShowOrg(o app.Org) v3.Organization {
	at := func(elem ...string) v3.Link {
		return v3.Link{Href: p.Links.Href(append([]string{"v3", "organizations", o.GUID}, elem...)...)}
	}
	return v3.Organization{
		GUID: o.GUID, CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt), Name: o.Name, Suspended: o.Suspended,
		Relationships: v3.OrganizationRelationships{Quota: v3.To(QuotaOf(o))},
		Metadata:      rest.PresentMetadata(o.Metadata),
		Links:         v3.Links{"self": at(), "domains": at("domains"), "default_domain": at("domains", "default")},
	}
}

// Space returns the space that the path names.
func (p *Presenter) Space(r *http.Request) (app.Space, error) {
	sp, err := p.Platform.Registry.Space(r.PathValue("guid"))
	return sp, rest.Missing("Space", err)
}

// ShowSpace returns a space as responses show it.
func (p *Presenter) ShowSpace(sp app.Space) v3.Space {
	self := p.Links.Href("v3", "spaces", sp.GUID)
	return v3.Space{
		GUID: sp.GUID, CreatedAt: v3.At(sp.CreatedAt), UpdatedAt: v3.At(sp.UpdatedAt), Name: sp.Name,
		Relationships: v3.SpaceRelationships{Organization: v3.To(sp.Org), Quota: v3.To(sp.Quota)},
		Metadata:      rest.PresentMetadata(sp.Metadata),
		Links: v3.Links{
			"self":           {Href: self},
			"organization":   {Href: p.Links.Href("v3", "organizations", sp.Org)},
			"features":       {Href: self + "/features"},
			"apply_manifest": {Href: self + "/actions/apply_manifest", Method: http.MethodPost},
		},
	}
}

// Include reads the related resources to show, each once. It leaves out deleted ones.
func (p *Presenter) Include(in rest.Include) (map[string]any, error) {
	out := map[string]any{}
	if in.Orgs != nil {
		all, err := rest.PresentEach(in.Orgs, p.Platform.Registry.Org, p.ShowOrg)
		if err != nil {
			return nil, err
		}
		out["organizations"] = all
	}
	if in.Spaces != nil {
		all, err := rest.PresentEach(in.Spaces, p.Platform.Registry.Space, p.ShowSpace)
		if err != nil {
			return nil, err
		}
		out["spaces"] = all
	}
	if in.Users != nil {
		people, err := p.People()
		if err != nil {
			return nil, err
		}
		out["users"], err = rest.PresentEach(in.Users, func(guid string) (platform.Person, error) {
			p, ok := people.ByGUID[guid]
			if !ok {
				return p, auth.ErrNotFound
			}
			return p, nil
		}, p.ShowUser)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// People are all known users and clients: users that were not deleted here, and clients
// that were registered or have a role. Callers share them and do not change them.
type People struct {
	ByGUID map[string]platform.Person
	Sorted []platform.Person // by the time of their creation, the default order of lists
}

// NewPeople returns the memory for People. It is valid until a user or a role changes.
func NewPeople(db *store.DB) *store.Memo[People] {
	return store.NewMemo[People](db, auth.UsersBucket, auth.RolesBucket, registry.PeopleBucket)
}

// People returns all known users and clients.
func (p *Presenter) People() (People, error) {
	if p.Memo == nil {
		return p.readPeople()
	}
	return p.Memo.Get(p.readPeople)
}

func (p *Presenter) readPeople() (People, error) {
	all, err := p.allPeople()
	out := People{ByGUID: all, Sorted: slices.SortedFunc(maps.Values(all), func(a, b platform.Person) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.GUID, b.GUID))
	})}
	return out, err
}

func (p *Presenter) allPeople() (map[string]platform.Person, error) {
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

// ShowUser returns a user as responses show it.
func (p *Presenter) ShowUser(u platform.Person) v3.User {
	out := v3.User{
		GUID: u.GUID, CreatedAt: v3.At(u.Created), UpdatedAt: v3.At(u.Updated), PresentationName: u.DisplayName(),
		Metadata: rest.PresentMetadata(u.Metadata), Links: v3.Links{"self": {Href: p.Links.Href("v3", "users", u.GUID)}},
	}
	if u.Name != "" {
		out.Username, out.Origin = &u.Name, &u.Origin
	}
	return out
}

// QuotaOf returns the guid of an org's quota.
func QuotaOf(o app.Org) string {
	if o.Quota == "" {
		return app.Unlimited().GUID
	}
	return o.Quota
}

// Visible returns those of the spaces that the caller can see.
func Visible(guids []string, perms access.Permissions) []string {
	return slices.DeleteFunc(slices.Clone(guids), func(guid string) bool { return !perms.SeesSpace(guid) })
}

// forAll are the feature flags that apply to administrators as well, as on Cloud Foundry.
var forAll = []string{app.FlagEnvVisibility, app.FlagRouteSharing, app.FlagServiceSharing, app.FlagSpaceBrokers}

// Feature refuses a feature that an administrator has disabled. Most feature flags do
// not apply to administrators.
func (p *Presenter) Feature(ctx context.Context, name string) error {
	if access.Principal(ctx).Admin() && !slices.Contains(forAll, name) {
		return nil
	}
	f, err := p.Platform.Registry.Flag(name)
	if err != nil || f.Enabled {
		return err
	}
	return featureDisabled(f)
}

// CheckRouteOptions checks options of a route in a request. Hash-based routing needs a
// feature flag, which applies to administrators as well.
func (p *Presenter) CheckRouteOptions(key string, options map[string]string) error {
	f, err := p.Platform.Registry.Flag(routeoptions.FeatureFlag)
	if err != nil {
		return err
	}
	var ps app.Violations
	ps.RouteOptions(key, func(problem routeoptions.Problem) { routeoptions.CheckRequest(options, f.Enabled, problem) })
	return ps.Err()
}

func featureDisabled(f app.Flag) *rest.Error {
	why := f.Name
	if f.Message != "" {
		why = f.Message
	}
	return &rest.Error{Status: http.StatusForbidden, Code: 330002, Title: "CF-FeatureDisabled", Detail: "Feature Disabled: " + why}
}
