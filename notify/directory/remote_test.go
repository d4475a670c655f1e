package directory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

// remoteServer is a fake platform with the formats of the API and of the authorization
// server.
type remoteServer struct {
	*httptest.Server
	mu        sync.Mutex // guards the fields below
	tokens    int        // number of tokens issued
	revoked   bool       // the first token is refused
	tokenLife int        // of tokens, in seconds
	requests  []string
	responses map[string]string // by path (other paths have generated responses)
	status    map[string]int    // by path
	users     []string          // of the UAA (a name with a leading dash is inactive)
	roles     [][2]string       // type and user
}

func newRemoteServer(t testing.TB) *remoteServer {
	e := &remoteServer{tokenLife: 600, responses: map[string]string{}, status: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.Close)
	return e
}

func (e *remoteServer) remote(t testing.TB) *Remote {
	t.Helper()
	return testkit.Must(NewRemote(RemoteConfig{API: e.URL, UAA: e.URL + "/uaa/", ClientID: "service", ClientSecret: "s3cr3t"}))(t)
}

func (e *remoteServer) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, r.Method+" "+r.URL.Path)
	if s := e.status[r.URL.Path]; s != 0 {
		w.Header().Set("Location", "/uaa/Users/stolen")
		http.Error(w, "boom", s)
		return
	}
	if r.URL.Path == "/uaa/oauth/token" {
		id, secret, _ := r.BasicAuth()
		if id != "service" || secret != "s3cr3t" || r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("client_id") != "service" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		e.tokens++
		fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer","expires_in":%d}`, e.tokens, e.tokenLife)
		return
	}
	if got := r.Header.Get("Authorization"); got != fmt.Sprintf("Bearer token-%d", e.tokens) || e.revoked && e.tokens == 1 {
		http.Error(w, "who?", http.StatusUnauthorized)
		return
	}
	e.respond(w, r)
}

func (e *remoteServer) respond(w http.ResponseWriter, r *http.Request) {
	if a, ok := e.responses[r.URL.Path]; ok {
		fmt.Fprint(w, a)
		return
	}
	switch r.URL.Path {
	case "/uaa/Users":
		e.listUsers(w, r.URL.Query())
	case "/v3/roles":
		e.listRoles(w, r.URL.Query())
	default:
		http.NotFound(w, r)
	}
}

// listUsers returns pages of two users, whatever size is requested.
func (e *remoteServer) listUsers(w http.ResponseWriter, q url.Values) {
	start, _ := strconv.Atoi(q.Get("startIndex"))
	from := min(start-1, len(e.users))
	var page []map[string]any
	for _, u := range e.users[from:min(from+2, len(e.users))] {
		page = append(page, map[string]any{"id": strings.TrimPrefix(u, "-"), "active": !strings.HasPrefix(u, "-")})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"totalResults": len(e.users), "resources": page})
}

// listRoles returns pages of two roles, and a next page on a foreign server.
func (e *remoteServer) listRoles(w http.ResponseWriter, q url.Values) {
	var found []any
	for _, r := range e.roles {
		if q.Get("types") == "" || q.Get("types") == r[0] {
			found = append(found, map[string]any{"type": r[0], "relationships": map[string]any{"user": map[string]any{"data": map[string]any{"guid": r[1]}}}})
		}
	}
	page, _ := strconv.Atoi(q.Get("page"))
	from := min(2*(page-1), len(found))
	_ = json.NewEncoder(w).Encode(map[string]any{
		"pagination": map[string]any{"total_pages": (len(found) + 1) / 2, "next": map[string]any{"href": "http://192.0.2.1/v3/roles?page=2"}},
		"resources":  found[from:min(from+2, len(found))],
	})
}

func (e *remoteServer) count(what string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.requests {
		if a == what {
			n++
		}
	}
	return n
}

func guids(t testing.TB, a delivery.Audience, err error) (out []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range a.People {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.GUID)
	}
	return out
}

const (
	theSpace = `{"guid":"s1","name":"dev","relationships":{"organization":{"data":{"guid":"o1"}}}}`
	theOrg   = `{"guid":"o1","name":"local"}`
)

// Users on all pages are found once, inactive users are left out, and one token is
// enough for all requests.
func TestRemotePeople(t *testing.T) {
	e := newRemoteServer(t)
	e.users = []string{"ann", "-bob", "cid", "ann", "dee"}
	e.roles = [][2]string{{"organization_user", "ann"}, {"organization_manager", "ann"}, {"organization_user", "bob"}, {"organization_auditor", "cid"}, {"organization_billing_manager", "dee"}}
	e.responses["/v3/spaces/s1"], e.responses["/v3/organizations/o1"] = theSpace, theOrg
	e.responses["/uaa/Groups"] = `{"resources":[{"displayName":"Cloud.Read","members":[{"value":"x","type":"USER"}]},
		{"displayName":"cloud.read","members":[{"value":"ann","type":"USER"},{"value":"inner","type":"GROUP"},{"value":"gone","type":"GROUP"}]}]}`
	e.responses["/uaa/Groups/inner"] = `{"displayName":"inner","members":[{"value":"bob","type":"USER"},{"value":"ann","type":"USER"},{"value":"inner","type":"GROUP"}]}`
	r, ctx := e.remote(t), t.Context()

	everyone, err := r.Everyone(ctx)
	if got, want := guids(t, everyone, err), []string{"ann", "cid", "dee"}; !slices.Equal(got, want) {
		t.Errorf("everyone = %v, want %v", got, want)
	}
	space, err := r.InSpace(ctx, "s1")
	if got, want := guids(t, space, err), []string{"ann", "bob", "cid", "dee"}; !slices.Equal(got, want) {
		t.Errorf("in space = %v, want %v", got, want)
	}
	if space.Space != (delivery.Place{GUID: "s1", Name: "dev"}) || space.Org != (delivery.Place{GUID: "o1", Name: "local"}) {
		t.Errorf("space = %v in %v", space.Space, space.Org)
	}
	for role, want := range map[string][]string{"": {"ann", "bob", "cid", "dee"}, delivery.RoleManager: {"ann"}, delivery.RoleAuditor: {"cid"}, delivery.RoleBilling: {"dee"}} {
		org, err := r.InOrg(ctx, "o1", role)
		if got := guids(t, org, err); !slices.Equal(got, want) || org.Org != (delivery.Place{GUID: "o1", Name: "local"}) {
			t.Errorf("in org as %q = %v of %v, want %v", role, got, org.Org, want)
		}
	}
	scope, err := r.WithScope(ctx, "cloud.read")
	if got, want := guids(t, scope, err), []string{"ann", "bob"}; !slices.Equal(got, want) {
		t.Errorf("with scope = %v, want %v", got, want)
	}
	if n := e.count("POST /uaa/oauth/token"); n != 1 {
		t.Errorf("tokens asked for = %d, want 1", n)
	}
}

func TestRemoteUser(t *testing.T) {
	e := newRemoteServer(t)
	r := e.remote(t)
	for body, want := range map[string]string{
		`{"userName":"ann","emails":[{"value":"a@x"},{"value":"b@x","primary":true}],"active":true}`: "b@x",
		`{"userName":"ann","emails":[{"value":"a@x"},{"value":"b@x"}]}`:                              "a@x",
		`{"userName":"ann@x","emails":[]}`:                                                           "ann@x",
		`{"userName":"ann"}`:                                                                         "",
		`{"userName":"ann@x","emails":[{"value":"a@x"}],"active":false}`:                             "",
	} {
		e.responses["/uaa/Users/u1"] = body
		p, err := r.User(t.Context(), "u1")
		if err != nil || p != (delivery.Person{GUID: "u1", Email: want}) {
			t.Errorf("%s: %v, %v, want %q", body, p, err, want)
		}
	}
	for _, guid := range []string{"nobody", "", "..", ".", "a\nb", strings.Repeat("x", maxNameLength+1), "../oauth/token"} {
		if _, err := r.User(t.Context(), guid); !errors.Is(err, delivery.ErrNoUser) {
			t.Errorf("user %q: %v, want ErrNoUser", guid, err)
		}
	}
	if n := e.count("GET /uaa/oauth/token"); n != 0 {
		t.Error("a guid left its place in the path")
	}
}

// A token is renewed when it expires, and when it is refused earlier.
func TestRemoteToken(t *testing.T) {
	t.Run("revoked", func(t *testing.T) {
		e := newRemoteServer(t)
		e.revoked, e.responses["/uaa/Users/u1"] = true, `{"userName":"ann@x"}`
		if _, err := e.remote(t).User(t.Context(), "u1"); err != nil || e.tokens != 2 {
			t.Errorf("%v with %d tokens, want 2", err, e.tokens)
		}
	})
	t.Run("short", func(t *testing.T) {
		e := newRemoteServer(t)
		e.tokenLife, e.responses["/uaa/Users/u1"] = int(expiryMargin.Seconds())-1, `{"userName":"ann@x"}`
		r := e.remote(t)
		for range 2 {
			if _, err := r.User(t.Context(), "u1"); err != nil {
				t.Fatal(err)
			}
		}
		if e.tokens != 2 {
			t.Errorf("tokens = %d, want 2", e.tokens)
		}
	})
	t.Run("none", func(t *testing.T) {
		e := newRemoteServer(t)
		e.responses["/v3/spaces/s1"] = theSpace
		r := testkit.Must(NewRemote(RemoteConfig{API: e.URL, UAA: e.URL + "/uaa", ClientID: "service", ClientSecret: "wr0ng"}))(t)
		_, err := r.InSpace(t.Context(), "s1")
		if err == nil || errors.Is(err, delivery.ErrPlatform) || strings.Contains(err.Error(), "wr0ng") || !strings.Contains(err.Error(), "cannot get a token as client service") {
			t.Errorf("error = %v", err)
		}
		if n := e.count("POST /uaa/oauth/token"); n != 1 {
			t.Errorf("tokens asked for = %d, want 1", n)
		}
	})
}

// Missing resources, failures and malformed responses give different errors.
func TestRemoteTrouble(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status map[string]int
		body   map[string]string
		ask    func(ctx context.Context, r *Remote) error
		want   error // nil: any other error
	}{
		{"no space", nil, nil, inSpace, delivery.ErrNoSpace},
		{"no org", nil, nil, inOrg, delivery.ErrNoOrg},
		{"space fails", map[string]int{"/v3/spaces/s1": 500}, nil, inSpace, delivery.ErrPlatform},
		{"space is hidden", map[string]int{"/v3/spaces/s1": 403}, nil, inSpace, delivery.ErrPlatform},
		{"space without its org", nil, map[string]string{"/v3/spaces/s1": theSpace}, inSpace, delivery.ErrPlatform},
		{"space of no org", nil, map[string]string{"/v3/spaces/s1": `{"guid":"s1"}`}, inSpace, delivery.ErrPlatform},
		{"another space", nil, map[string]string{"/v3/spaces/s1": `{"guid":"s2"}`}, inSpace, delivery.ErrPlatform},
		{"no JSON", nil, map[string]string{"/v3/spaces/s1": `<html>`}, inSpace, delivery.ErrPlatform},
		{"redirect", map[string]int{"/v3/spaces/s1": 302}, nil, inSpace, delivery.ErrPlatform},
		{"roles fail", map[string]int{"/v3/roles": 404}, map[string]string{"/v3/spaces/s1": theSpace, "/v3/organizations/o1": theOrg}, inSpace, nil},
		{"users fail", map[string]int{"/uaa/Users": 503}, nil, everyone, nil},
		{"groups fail", map[string]int{"/uaa/Groups": 404}, nil, withScope, nil},
		{"no group", nil, map[string]string{"/uaa/Groups": `{"resources":[]}`}, withScope, delivery.ErrNoScope},
		{"inner group fails", map[string]int{"/uaa/Groups/g": 500}, map[string]string{"/uaa/Groups": `{"resources":[{"displayName":"a.b","members":[{"value":"g","type":"GROUP"}]}]}`}, withScope, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newRemoteServer(t)
			for k, v := range tt.status {
				e.status[k] = v
			}
			for k, v := range tt.body {
				e.responses[k] = v
			}
			err := tt.ask(t.Context(), e.remote(t))
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
			for _, about := range []error{delivery.ErrNoSpace, delivery.ErrNoOrg, delivery.ErrNoScope, delivery.ErrPlatform} {
				if tt.want == nil && errors.Is(err, about) {
					t.Errorf("error = %v, want a plain one", err)
				}
			}
			if n := e.count("GET /uaa/Users/stolen"); n != 0 {
				t.Error("a redirect was followed")
			}
		})
	}
}

func drained(a delivery.Audience, err error) error {
	if err != nil {
		return err
	}
	for _, err := range a.People {
		if err != nil {
			return err
		}
	}
	return nil
}

func inSpace(ctx context.Context, r *Remote) error   { return drained(r.InSpace(ctx, "s1")) }
func inOrg(ctx context.Context, r *Remote) error     { return drained(r.InOrg(ctx, "o1", "")) }
func everyone(ctx context.Context, r *Remote) error  { return drained(r.Everyone(ctx)) }
func withScope(ctx context.Context, r *Remote) error { return drained(r.WithScope(ctx, "a.b")) }

// A scope cannot inject another filter.
func TestRemoteScopeInFilter(t *testing.T) {
	e := newRemoteServer(t)
	for _, scope := range []string{`a" or displayName pr or displayName eq "b`, `a\`, "", "a\nb"} {
		if _, err := e.remote(t).WithScope(t.Context(), scope); !errors.Is(err, delivery.ErrNoScope) {
			t.Errorf("scope %q: %v, want ErrNoScope", scope, err)
		}
	}
	if len(e.requests) != 0 {
		t.Errorf("asked %v, want nothing", e.requests)
	}
}

func TestNewRemote(t *testing.T) {
	good := RemoteConfig{API: "https://api.example.com", UAA: "https://uaa.example.com", ClientID: "c", ClientSecret: "s"}
	if _, err := NewRemote(good); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(c *RemoteConfig){
		"no API": func(c *RemoteConfig) { c.API = "" }, "no scheme": func(c *RemoteConfig) { c.UAA = "uaa.example.com" },
		"password": func(c *RemoteConfig) { c.API = "https://a:b@api.example.com" }, "query": func(c *RemoteConfig) { c.UAA += "?x=y" },
		"no client": func(c *RemoteConfig) { c.ClientID = "" }, "no secret": func(c *RemoteConfig) { c.ClientSecret = "" },
	} {
		c := good
		spoil(&c)
		if _, err := NewRemote(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
