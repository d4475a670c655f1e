package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// fakeAccounts holds the orgs, spaces, users, roles, clients and tokens of the fake daemon.
type fakeAccounts struct {
	orgs    []v3.Organization
	spaces  []v3.Space
	users   []v3.User
	roles   []v3.Role
	clients []client.OAuthClient
	emails  map[string]string // by user
	secrets map[string]string // by user or client
	good    []string          // valid access tokens, or empty if none is needed
	refresh map[string]string // refresh token to user, valid for one use
	locked  bool              // tokens are needed
	life    time.Duration     // lifetime of the next tokens
	count   int               // number of tokens and resources created
	grants  []string
}

func newFakeAccounts() fakeAccounts {
	return fakeAccounts{
		orgs:    []v3.Organization{{GUID: "org-1", Name: "local"}},
		spaces:  []v3.Space{{GUID: "space-1", Name: "dev", Relationships: v3.SpaceRelationships{Organization: v3.To("org-1")}}},
		secrets: map[string]string{"admin": "it's"}, refresh: map[string]string{}, emails: map[string]string{}, life: time.Hour,
		users: []v3.User{{GUID: "user-admin", Username: ptr("admin"), PresentationName: "admin", Origin: ptr("uaa")}},
	}
}

func ptr[T any](v T) *T { return &v }

// listen opens a listener that needs tokens, and returns its URL.
func (d *fakeDaemon) listen() string {
	d.accounts.locked = true
	s := httptest.NewServer(d.handler())
	d.t.Cleanup(s.Close)
	return s.URL
}

// guard returns an error response for a request without a valid token.
func (p *fakeAccounts) guard(r *http.Request) *answer {
	if !p.locked || r.URL.Path == "/" || r.URL.Path == "/uaa/oauth/token" || strings.HasPrefix(r.Host, "localhost") {
		return nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "bearer ")
	switch {
	case !ok:
		return &answer{401, v3.Errors{Errors: []v3.Error{{Code: 10002, Title: "CF-NotAuthenticated", Detail: "Authentication error"}}}}
	case !slices.Contains(p.good, token):
		return &answer{401, v3.Errors{Errors: []v3.Error{{Code: 1000, Title: "CF-InvalidAuthToken", Detail: "Invalid Auth Token"}}}}
	default:
		return nil
	}
}

// token creates a token in the format of UAA.
func (p *fakeAccounts) token(user, clientID string) map[string]any {
	p.count++
	c := map[string]any{"jti": fmt.Sprintf("jti-%d", p.count), "exp": time.Now().Add(p.life).Unix(), "client_id": clientID, "revocable": true}
	out := map[string]any{"token_type": "bearer"}
	if user != "" {
		c["user_name"], c["user_id"], c["origin"] = user, "user-"+user, "uaa"
		out["refresh_token"] = fmt.Sprintf("refresh-%d", p.count)
		p.refresh[fmt.Sprintf("refresh-%d", p.count)] = user
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	access := "e30." + base64.RawURLEncoding.EncodeToString(text) + ".sig"
	p.good = append(p.good, access)
	out["access_token"] = access
	return out
}

func oauthRefusal(status int, name, description string) answer {
	return answer{status, map[string]string{"error": name, "error_description": description}}
}

func (p *fakeAccounts) grant(r *http.Request, body []byte) any {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return oauthRefusal(400, "invalid_request", err.Error())
	}
	user, _, basic := r.BasicAuth()
	p.grants = append(p.grants, form.Get("grant_type"))
	switch form.Get("grant_type") {
	case "password":
		if name := form.Get("username"); basic && user == "cf" && p.secrets[name] != "" && p.secrets[name] == form.Get("password") {
			return p.token(name, "cf")
		}
	case "refresh_token":
		if name := p.refresh[form.Get("refresh_token")]; basic && user == "cf" && name != "" {
			delete(p.refresh, form.Get("refresh_token"))
			return p.token(name, "cf")
		}
	case "client_credentials":
		if id := form.Get("client_id"); !basic && p.secrets[id] != "" && p.secrets[id] == form.Get("client_secret") {
			return p.token("", id)
		}
	}
	return oauthRefusal(401, "unauthorized", "Bad credentials")
}

// matchesFilter reports whether a value matches the filter of a list.
func matchesFilter(r *http.Request, name, value string) bool {
	q := r.URL.Query()
	return !q.Has(name) || slices.Contains(strings.Split(q.Get(name), ","), value)
}

func listWhere[T any](all []T, ok func(T) bool) v3.List[T] {
	return listOf(slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !ok(v) })...)
}

// rawText is a response that is not JSON.
type rawText string

func unique(detail string) answer {
	return answer{422, v3.Errors{Errors: []v3.Error{{Code: 10008, Title: v3.TitleUnprocessable, Detail: detail}}}}
}

func (p *fakeAccounts) routes(d *fakeDaemon, handle func(string, func(*http.Request, []byte) any)) {
	handle("POST /uaa/oauth/token", func(r *http.Request, b []byte) any { return d.accounts.grant(r, b) })
	handle("DELETE /uaa/oauth/token/revoke/{jti}", func(*http.Request, []byte) any { return map[string]string{} })
	handle("GET /dew/v1/credentials", func(*http.Request, []byte) any {
		return v3.Credentials{API: unusedURL, Username: "admin", Password: d.accounts.secrets["admin"]}
	})
	handle("POST /dew/v1/token", func(*http.Request, []byte) any {
		return v3.LocalToken{Token: d.accounts.token("admin", "cf")["access_token"].(string), Type: "bearer"}
	})
	d.orgRoutes(handle)
	d.roleRoutes(handle)
	d.accountRoutes(handle)
	d.clientRoutes(handle)
	handle("GET /v3/domains", func(r *http.Request, _ []byte) any {
		return listWhere([]v3.Domain{
			{GUID: "d-1", Name: "dew.localhost", SupportedProtocols: []string{"http"}},
			{GUID: "d-2", Name: "apps.internal", Internal: true, SupportedProtocols: []string{"http"}},
			{GUID: "d-tcp", Name: "tcp.dew.localhost", SupportedProtocols: []string{"tcp"}},
			{GUID: "d-3", Name: "own.example.com", Relationships: v3.DomainRelationships{
				Organization: v3.To("org-9"), SharedOrganizations: v3.ToMany{Data: d.records.related["/v3/domains/d-3/relationships/shared_organizations"]},
			}},
		}, func(d v3.Domain) bool { return matchesFilter(r, "names", d.Name) })
	})
	handle("GET /v3/buildpacks", func(*http.Request, []byte) any {
		return listOf(v3.Buildpack{GUID: "b-1", Name: "binary_buildpack", Stack: ptr("host"), Position: 1, Enabled: true, State: "READY"})
	})
	handle("GET /v3/apps/app-1/manifest", func(*http.Request, []byte) any { return rawText("applications:\n- name: shop\n") })
	d.stackRoutes(handle)
	handle("GET /v3/droplets", func(r *http.Request, _ []byte) any {
		if r.URL.Query().Get("app_guids") != "app-1" {
			d.t.Errorf("droplets of %q", r.URL.Query().Get("app_guids"))
		}
		return listOf(v3.Droplet{GUID: "droplet-2", State: "STAGED", Stack: "host"}, v3.Droplet{GUID: "droplet-1", State: "STAGED", Stack: "host"})
	})
}

func (d *fakeDaemon) orgRoutes(handle func(string, func(*http.Request, []byte) any)) {
	p := &d.accounts
	handle("GET /v3/organizations", func(r *http.Request, _ []byte) any {
		return listWhere(p.orgs, func(o v3.Organization) bool { return matchesFilter(r, "names", o.Name) })
	})
	handle("POST /v3/organizations", func(_ *http.Request, b []byte) any {
		var c v3.CreateOrganization
		d.decode(b, &c)
		if slices.ContainsFunc(p.orgs, func(o v3.Organization) bool { return o.Name == c.Name }) {
			return unique("Organization '" + c.Name + "' already exists.")
		}
		p.orgs = append(p.orgs, v3.Organization{GUID: "org-" + c.Name, Name: c.Name})
		return answer{201, p.orgs[len(p.orgs)-1]}
	})
	handle("PATCH /v3/organizations/{guid}", func(r *http.Request, _ []byte) any { return v3.Organization{} })
	handle("DELETE /v3/organizations/{guid}", func(r *http.Request, _ []byte) any {
		p.orgs = slices.DeleteFunc(p.orgs, func(o v3.Organization) bool { return o.GUID == r.PathValue("guid") })
		return job{}
	})
	handle("GET /v3/spaces", func(r *http.Request, _ []byte) any {
		return listWhere(p.spaces, func(s v3.Space) bool {
			return matchesFilter(r, "names", s.Name) && matchesFilter(r, "guids", s.GUID) && matchesFilter(r, "organization_guids", s.Relationships.Organization.ID())
		})
	})
	handle("POST /v3/spaces", func(_ *http.Request, b []byte) any {
		var c v3.CreateSpace
		d.decode(b, &c)
		for _, s := range p.spaces {
			if s.Name == c.Name && s.Relationships.Organization.ID() == c.Relationships.Organization.ID() {
				return unique("Name must be unique per organization")
			}
		}
		p.spaces = append(p.spaces, v3.Space{GUID: "space-" + c.Name, Name: c.Name, Relationships: v3.SpaceRelationships{Organization: c.Relationships.Organization}})
		return answer{201, p.spaces[len(p.spaces)-1]}
	})
	handle("PATCH /v3/spaces/{guid}", func(r *http.Request, _ []byte) any { return v3.Space{} })
	handle("DELETE /v3/spaces/{guid}", func(r *http.Request, _ []byte) any {
		p.spaces = slices.DeleteFunc(p.spaces, func(s v3.Space) bool { return s.GUID == r.PathValue("guid") })
		return job{}
	})
}

func (d *fakeDaemon) roleRoutes(handle func(string, func(*http.Request, []byte) any)) {
	p := &d.accounts
	handle("GET /v3/roles", func(r *http.Request, _ []byte) any {
		return listWhere(p.roles, func(x v3.Role) bool {
			return matchesFilter(r, "types", x.Type) && matchesFilter(r, "user_guids", x.Relationships.User.ID()) &&
				matchesFilter(r, "organization_guids", x.Relationships.Organization.ID()) && matchesFilter(r, "space_guids", x.Relationships.Space.ID())
		})
	})
	handle("POST /v3/roles", func(_ *http.Request, b []byte) any {
		var c v3.CreateRole
		d.decode(b, &c)
		who := c.Relationships.User.Data
		guid := who.GUID
		if who.Username != "" {
			guid = "user-" + who.Username
		}
		for _, x := range p.roles {
			if x.Type == c.Type && x.Relationships.User.ID() == guid && x.Relationships.Organization.ID() == c.Relationships.Organization.ID() && x.Relationships.Space.ID() == c.Relationships.Space.ID() {
				return unique("User '" + guid + "' already has '" + c.Type + "' role in organization 'x'.")
			}
		}
		p.count++
		p.roles = append(p.roles, v3.Role{GUID: fmt.Sprintf("role-%d", p.count), Type: c.Type, Relationships: v3.RoleRelationships{
			User: v3.To(guid), Organization: c.Relationships.Organization, Space: c.Relationships.Space,
		}})
		return answer{201, p.roles[len(p.roles)-1]}
	})
	handle("DELETE /v3/roles/{guid}", func(r *http.Request, _ []byte) any {
		p.roles = slices.DeleteFunc(p.roles, func(x v3.Role) bool { return x.GUID == r.PathValue("guid") })
		return job{}
	})
	handle("GET /v3/users", func(r *http.Request, _ []byte) any {
		return listWhere(p.users, func(u v3.User) bool {
			return matchesFilter(r, "usernames", *u.Username) && matchesFilter(r, "guids", u.GUID)
		})
	})
	handle("DELETE /v3/users/{guid}", func(*http.Request, []byte) any { return job{} })
}

func (d *fakeDaemon) accountRoutes(handle func(string, func(*http.Request, []byte) any)) {
	p := &d.accounts
	handle("POST /uaa/Users", func(_ *http.Request, b []byte) any {
		var a client.Account
		d.decode(b, &a)
		if p.secrets[a.UserName] != "" {
			return oauthRefusal(409, "scim_resource_already_exists", "Username already in use: "+a.UserName)
		}
		p.secrets[a.UserName], p.emails[a.UserName] = a.Password, a.Emails[0].Value
		p.users = append(p.users, v3.User{GUID: "user-" + a.UserName, Username: &a.UserName, PresentationName: a.UserName, Origin: &a.Origin})
		a.ID = "user-" + a.UserName
		return answer{201, a}
	})
	handle("DELETE /uaa/Users/{guid}", func(r *http.Request, _ []byte) any {
		p.users = slices.DeleteFunc(p.users, func(u v3.User) bool { return u.GUID == r.PathValue("guid") })
		return client.Account{}
	})
	handle("PUT /uaa/Users/{guid}/password", func(r *http.Request, b []byte) any {
		var c struct{ OldPassword, Password string }
		d.decode(b, &c)
		name := strings.TrimPrefix(r.PathValue("guid"), "user-")
		if c.OldPassword != "" && c.OldPassword != p.secrets[name] {
			return oauthRefusal(422, "invalid_password", "The old password is another one")
		}
		p.secrets[name] = c.Password
		return map[string]string{"status": "ok"}
	})
}

func (d *fakeDaemon) clientRoutes(handle func(string, func(*http.Request, []byte) any)) {
	p := &d.accounts
	handle("GET /uaa/oauth/clients", func(r *http.Request, _ []byte) any {
		from := 0
		if _, err := fmt.Sscan(r.URL.Query().Get("startIndex"), &from); err != nil {
			d.t.Error(err)
		}
		end := min(from, len(p.clients)) // one on each page
		return map[string]any{"resources": p.clients[min(from-1, len(p.clients)):end], "totalResults": len(p.clients)}
	})
	handle("POST /uaa/oauth/clients", func(_ *http.Request, b []byte) any {
		var c client.OAuthClient
		d.decode(b, &c)
		if p.secrets[c.ID] != "" {
			return oauthRefusal(409, "invalid_client", "Client already exists: "+c.ID)
		}
		p.secrets[c.ID], c.Secret = c.Secret, ""
		p.clients = append(p.clients, c)
		return answer{201, c}
	})
	handle("DELETE /uaa/oauth/clients/{id}", func(r *http.Request, _ []byte) any {
		before := len(p.clients)
		p.clients = slices.DeleteFunc(p.clients, func(c client.OAuthClient) bool { return c.ID == r.PathValue("id") })
		if len(p.clients) == before {
			return oauthRefusal(404, "not_found", "No such client")
		}
		return map[string]string{}
	})
}
