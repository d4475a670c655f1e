package directory

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
)

const (
	maxNameLength = 255     // characters of guids and scopes
	maxPeople     = 1 << 20 // of one audience
	maxGroups     = 1000    // groups that one scope consists of
	rolesPage     = 1000
	peoplePage    = 500 // the maximum page size of authorization servers
)

// RemoteConfig configures the access to a remote platform.
type RemoteConfig struct {
	API string // https://api.example.com
	UAA string // https://uaa.example.com
	// The client of the service. It needs the authorities cloud_controller.admin (or
	// another one that can see all roles) and scim.read.
	ClientID, ClientSecret string
	// Trust verifies the servers; nil: the machine's certificates.
	Trust *tls.Config
}

// Remote is the Directory of a remote platform. It gets roles from the API, and users
// from the authorization server.
//
//	InSpace, InOrg      ─▶ API  /v3/spaces, /v3/organizations, /v3/roles
//	Everyone, WithScope ─▶ UAA  /Users, /Groups
//	User                ─▶ UAA  /Users/{guid}, at delivery
type Remote struct {
	api, uaa string
	client   *tokenClient
}

// NewRemote checks c. It sends no request.
func NewRemote(c RemoteConfig) (*Remote, error) {
	api, err := RemoteURL(c.API)
	if err != nil {
		return nil, fmt.Errorf("cannot use the platform at %q: %w", c.API, err)
	}
	uaa, err := RemoteURL(c.UAA)
	if err != nil {
		return nil, fmt.Errorf("cannot use the authorization server at %q: %w", c.UAA, err)
	}
	if c.ClientID == "" || c.ClientSecret == "" {
		return nil, errors.New("cannot use the authorization server without a client id and a client secret")
	}
	return &Remote{api: api, uaa: uaa, client: newTokenClient(c, uaa)}, nil
}

// remoteUser has the fields of a user that Remote reads.
type remoteUser struct {
	ID     string        `json:"id"`
	Name   string        `json:"userName"`
	Active *bool         `json:"active"` // nil: not reported
	Emails []remoteEmail `json:"emails"`
}

type remoteEmail struct {
	Value   string `json:"value"`
	Primary bool   `json:"primary"`
}

func (u remoteUser) active() bool { return u.Active == nil || *u.Active }

// person returns the user with the mail address of the account, or with the name if
// that is an address. An inactive user has no address, because lists of roles and
// scopes do not say who is inactive.
func (u remoteUser) person() delivery.Person {
	p := delivery.Person{GUID: u.ID}
	if !u.active() {
		return p
	}
	if len(u.Emails) > 0 {
		i := max(slices.IndexFunc(u.Emails, func(e remoteEmail) bool { return e.Primary }), 0)
		p.Email = u.Emails[i].Value
	}
	if p.Email == "" && strings.Contains(u.Name, "@") {
		p.Email = u.Name
	}
	return p
}

// User implements Directory.
func (r *Remote) User(ctx context.Context, guid string) (delivery.Person, error) {
	if !validGUID(guid) {
		return delivery.Person{}, fmt.Errorf("user %s: %w", inbound.Shorten(guid), delivery.ErrNoUser)
	}
	var u remoteUser
	err := r.client.get(ctx, r.uaa+"/Users/"+url.PathEscape(guid), &u)
	switch {
	case IsMissing(err):
		return delivery.Person{}, fmt.Errorf("user %s: %w", guid, delivery.ErrNoUser)
	case err != nil:
		return delivery.Person{}, fmt.Errorf("cannot get user %s: %w", guid, err)
	}
	u.ID = guid
	return u.person(), nil
}

// validGUID reports whether a text can be used in a path.
func validGUID(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxNameLength && !strings.ContainsFunc(s, unicode.IsControl)
}

// IsMissing reports whether a server responded that something does not exist.
func IsMissing(err error) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && s.status == http.StatusNotFound && !errors.Is(err, errToken)
}

// Everyone implements Directory.
func (r *Remote) Everyone(ctx context.Context) (delivery.Audience, error) {
	return delivery.Audience{People: uniquePeople(r.everyone(ctx))}, nil
}

// everyone reads users page by page. A page can be shorter than requested; an empty one
// is the last.
func (r *Remote) everyone(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for start, total := 1, 1; start <= total; {
			query := url.Values{
				"attributes": {"id,active"}, "sortBy": {"created"}, "sortOrder": {"ascending"},
				"startIndex": {strconv.Itoa(start)}, "count": {strconv.Itoa(peoplePage)},
			}
			var page struct {
				Total     int          `json:"totalResults"`
				Resources []remoteUser `json:"resources"`
			}
			if err := r.client.get(ctx, r.uaa+"/Users?"+query.Encode(), &page); err != nil {
				yield("", err)
				return
			}
			for _, u := range page.Resources {
				if u.active() && !yield(u.ID, nil) {
					return
				}
			}
			if len(page.Resources) == 0 {
				return
			}
			start, total = start+len(page.Resources), page.Total
		}
	}
}

// uniquePeople converts guids to people, without duplicates and with a limit.
func uniquePeople(guids iter.Seq2[string, error]) iter.Seq2[delivery.Person, error] {
	return func(yield func(delivery.Person, error) bool) {
		seen := map[string]bool{}
		for guid, err := range guids {
			if err == nil && len(seen) >= maxPeople {
				err = fmt.Errorf("the audience has more than %d people", maxPeople)
			}
			if err != nil {
				yield(delivery.Person{}, err)
				return
			}
			if seen[guid] || !validGUID(guid) {
				continue
			}
			seen[guid] = true
			if !yield(delivery.Person{GUID: guid}, nil) {
				return
			}
		}
	}
}

// remoteGroup is a scope with its members.
type remoteGroup struct {
	Name    string `json:"displayName"`
	Members []struct {
		Value string `json:"value"`
		Type  string `json:"type"`
	} `json:"members"`
}

// WithScope implements Directory.
func (r *Remote) WithScope(ctx context.Context, scope string) (delivery.Audience, error) {
	// The filter cannot express these characters, and no scope has them.
	if !validGUID(scope) || strings.ContainsAny(scope, `"\`) {
		return delivery.Audience{}, fmt.Errorf("scope %s: %w", inbound.Shorten(scope), delivery.ErrNoScope)
	}
	query := url.Values{"attributes": {"displayName,members"}, "filter": {`displayName eq "` + scope + `"`}}
	var found struct {
		Resources []remoteGroup `json:"resources"`
	}
	if err := r.client.get(ctx, r.uaa+"/Groups?"+query.Encode(), &found); err != nil {
		return delivery.Audience{}, fmt.Errorf("cannot list the users with scope %s: %w", scope, err)
	}
	// Filters ignore case; scopes do not.
	i := slices.IndexFunc(found.Resources, func(g remoteGroup) bool { return g.Name == scope })
	if i < 0 {
		return delivery.Audience{}, fmt.Errorf("scope %s: %w", scope, delivery.ErrNoScope)
	}
	return delivery.Audience{People: uniquePeople(r.members(ctx, found.Resources[i]))}, nil
}

// members returns the members of a group and of its nested groups.
func (r *Remote) members(ctx context.Context, g remoteGroup) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		seen := map[string]bool{}
		var nested []string
		for {
			for _, m := range g.Members {
				switch {
				case !strings.EqualFold(m.Type, "GROUP"):
					if !yield(m.Value, nil) {
						return
					}
				case !seen[m.Value] && validGUID(m.Value):
					seen[m.Value] = true
					nested = append(nested, m.Value)
				}
			}
			if len(nested) == 0 {
				return
			}
			if len(seen) > maxGroups {
				yield("", fmt.Errorf("the scope contains more than %d nested groups", maxGroups))
				return
			}
			g = remoteGroup{}
			// A group that was just deleted has no members.
			if err := r.client.get(ctx, r.uaa+"/Groups/"+url.PathEscape(nested[0]), &g); err != nil && !IsMissing(err) {
				yield("", err)
				return
			}
			nested = nested[1:]
		}
	}
}

// relationship is a relationship: the guid of a parent resource.
type relationship struct {
	Data struct {
		GUID string `json:"guid"`
	} `json:"data"`
}

// remotePlace is a space or an organization.
type remotePlace struct {
	GUID          string `json:"guid"`
	Name          string `json:"name"`
	Relationships struct {
		Organization relationship `json:"organization"`
	} `json:"relationships"`
}

// place requests a space or an organization. It returns missing if that does not exist.
func (r *Remote) place(ctx context.Context, kind, guid string, missing error) (p remotePlace, err error) {
	if !validGUID(guid) {
		return p, fmt.Errorf("%s: %w", inbound.Shorten(guid), missing)
	}
	err = r.client.get(ctx, r.api+"/v3/"+kind+"/"+url.PathEscape(guid), &p)
	switch {
	case err == nil && p.GUID != guid:
		return p, fmt.Errorf("%w: the response for %s has a different guid", delivery.ErrPlatform, guid)
	case err == nil || errors.Is(err, errToken) || ctx.Err() != nil:
		return p, err
	case IsMissing(err):
		return p, fmt.Errorf("%s: %w", guid, missing)
	}
	return p, fmt.Errorf("%w: %w", delivery.ErrPlatform, err)
}

// InSpace implements Directory.
func (r *Remote) InSpace(ctx context.Context, guid string) (delivery.Audience, error) {
	s, err := r.place(ctx, "spaces", guid, delivery.ErrNoSpace)
	if err != nil {
		return delivery.Audience{}, err
	}
	// A space without its organization is not the caller's mistake.
	o, err := r.place(ctx, "organizations", s.Relationships.Organization.Data.GUID, delivery.ErrPlatform)
	if err != nil {
		return delivery.Audience{}, err
	}
	return delivery.Audience{
		Space: delivery.Place{GUID: s.GUID, Name: s.Name}, Org: delivery.Place{GUID: o.GUID, Name: o.Name},
		People: uniquePeople(r.usersWithRoles(ctx, url.Values{"space_guids": {guid}})),
	}, nil
}

// remoteRoles maps the roles in requests to those of the platform.
var remoteRoles = map[string]string{
	delivery.RoleManager: "organization_manager", delivery.RoleAuditor: "organization_auditor", delivery.RoleBilling: "organization_billing_manager",
}

// InOrg implements Directory.
func (r *Remote) InOrg(ctx context.Context, guid, role string) (delivery.Audience, error) {
	o, err := r.place(ctx, "organizations", guid, delivery.ErrNoOrg)
	if err != nil {
		return delivery.Audience{}, err
	}
	filter := url.Values{"organization_guids": {guid}}
	if role != "" {
		filter.Set("types", cmp.Or(remoteRoles[role], role))
	}
	return delivery.Audience{Org: delivery.Place{GUID: o.GUID, Name: o.Name}, People: uniquePeople(r.usersWithRoles(ctx, filter))}, nil
}

// usersWithRoles returns the users with the roles that filter selects. It builds the
// URLs of further pages itself and ignores those in responses, so that the token is
// sent only to configured servers.
func (r *Remote) usersWithRoles(ctx context.Context, filter url.Values) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		filter.Set("per_page", strconv.Itoa(rolesPage))
		filter.Set("order_by", "created_at")
		for page, pages := 1, 1; page <= pages; page++ {
			filter.Set("page", strconv.Itoa(page))
			var got struct {
				Pagination struct {
					Pages int `json:"total_pages"`
				} `json:"pagination"`
				Resources []struct {
					Relationships struct {
						User relationship `json:"user"`
					} `json:"relationships"`
				} `json:"resources"`
			}
			if err := r.client.get(ctx, r.api+"/v3/roles?"+filter.Encode(), &got); err != nil {
				yield("", err)
				return
			}
			for _, role := range got.Resources {
				if !yield(role.Relationships.User.Data.GUID, nil) {
					return
				}
			}
			if len(got.Resources) == 0 {
				return
			}
			pages = got.Pagination.Pages
		}
	}
}

var _ delivery.Directory = (*Remote)(nil)
