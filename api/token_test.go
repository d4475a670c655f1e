package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// The password of the first administrator is visible over the socket only, until it is
// changed.
func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	var got v3.Credentials
	w.want(200, "GET", "/dew/v1/credentials", "", &got)
	if got.API != publicURL || got.Username != "admin" || got.Password == "" {
		t.Errorf("credentials = %+v", got)
	}
	w.user("root", auth.ScopeAdmin)
	for _, c := range [][2]string{{"GET", "/dew/v1/credentials"}, {"POST", "/dew/v1/token"}} {
		if got := w.as(w.login("root"), c[0], c[1], ""); got.Code != 404 {
			t.Errorf("%s over the listener = %d %s, want 404", c[1], got.Code, got.Body)
		}
	}
	admin := must(w.c.Auth.Accounts().UserByName("admin", ""))(t)
	if err := w.c.Auth.Accounts().SetPassword(admin.GUID, password); err != nil {
		t.Fatal(err)
	}
	got = v3.Credentials{}
	w.want(200, "GET", "/dew/v1/credentials", "", &got)
	if want := (v3.Credentials{API: publicURL, Username: "admin"}); got != want {
		t.Errorf("credentials after a change of the password = %+v, want %+v", got, want)
	}
	var token v3.LocalToken
	w.want(201, "POST", "/dew/v1/token", "", &token)
	if got := w.as(token.Token, "GET", "/v3/apps", ""); got.Code != 200 || token.Type != "bearer" {
		t.Errorf("the token of the socket = %d %s", got.Code, got.Body)
	}
	if err := w.c.Auth.Accounts().DeleteUser(admin.GUID); err != nil {
		t.Fatal(err)
	}
	w.refused("", "POST /dew/v1/token", "", "422 Cannot create a token: user 'admin' does not exist")
}

// The authorization server is reachable over the socket and the listener. Over the
// socket, all users are its administrators.
func TestUAAOverSocketAndListener(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	if got := w.as("", "GET", "/uaa/login", ""); got.Code != 200 {
		t.Errorf("GET /uaa/login = %d %s, want 200", got.Code, got.Body)
	}
	if got := w.as("", "GET", "/uaa/Users", ""); got.Code != 401 {
		t.Errorf("GET /uaa/Users of a stranger = %d %s, want 401", got.Code, got.Body)
	}
	if got := w.request("GET", "/uaa/Users", ""); got.Code != 200 || !strings.Contains(got.Body.String(), `"admin"`) {
		t.Errorf("GET /uaa/Users at the socket = %d %s, want admin", got.Code, got.Body)
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.user("root", auth.ScopeAdmin)
	token := w.login("root")
	for header, want := range map[string]int{
		"bearer " + token: 200, "Bearer " + token: 200, "BEARER   " + token: 200,
		"": 401, " ": 401, "bearer": 401, "bearer ": 401, token: 401, "Basic Y2Y6": 401, "bearer " + token + " x": 401,
	} {
		r := httptest.NewRequest("GET", "/v3/apps", nil)
		r.Host = "localhost"
		r.Header["Authorization"] = []string{header}
		got := httptest.NewRecorder()
		w.listener.ServeHTTP(got, r)
		if got.Code != want {
			t.Errorf("Authorization: %.20q = %d, want %d", header, got.Code, want)
		}
	}
}

// A request with a token is recorded under the name of its user.
func TestBearerIsActor(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	ann := w.user("ann")
	w.grant(ann, auth.SpaceDeveloper, w.space.GUID)
	got := w.as(w.login("ann"), "POST", "/v3/apps", `{"name":"shop","relationships":{"space":{"data":{"guid":"`+w.space.GUID+`"}}}}`)
	a := must(rest.DecodeBytes[v3.App](got.Body.Bytes()))(t)
	var es v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.app.create&target_guids="+a.GUID, "", &es)
	if len(es.Resources) != 1 || es.Resources[0].Actor != (v3.Party{GUID: ann, Type: "user", Name: "ann"}) {
		t.Errorf("events = %+v, want one of ann", es.Resources)
	}
}

func TestRootHasSSHEndpoint(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	c := w.c
	c.Metrics, c.SSH = nil, &platform.SSHEndpoint{Address: "127.0.0.1:2222", Fingerprint: "abc"}
	got := requestWithToken(must(New(c))(t).Handler(), "", "GET", "/", "")
	root := must(rest.DecodeBytes[v3.Root](got.Body.Bytes()))(t)
	want := v3.RootLink{Href: "127.0.0.1:2222", Meta: v3.RootMeta{HostKeyFingerprint: "abc", OAuthClient: "ssh-proxy"}}
	if root.Links.AppSSH == nil || *root.Links.AppSSH != want {
		t.Errorf("app_ssh = %+v, want %+v", root.Links.AppSSH, want)
	}
}

// brokenBody is a body that stops too early.
type brokenBody struct{ io.Reader }

func (brokenBody) Close() error { return errors.New("broken") }

func TestTokenResponses(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	serve := func(a rest.Answer) (got *httptest.ResponseRecorder, aborted bool) {
		got = httptest.NewRecorder()
		defer func() { aborted = recover() == http.ErrAbortHandler }() //nolint:errorlint // net/http compares it so
		w.s.serve(func(*http.Request) (any, error) { return a, nil })(got, httptest.NewRequest("GET", "/", nil))
		return got, false
	}
	got, _ := serve(rest.Answer{Status: 200, Raw: []byte("a: b\n"), ContentType: "application/x-yaml", Warnings: []string{"a, b", "ü c"}})
	h := got.Header()
	if got.Body.String() != "a: b\n" || h.Get("Content-Type") != "application/x-yaml" || h.Get("X-Cf-Warnings") != "a%2C+b,%C3%BC+c" || h.Get("Content-Length") != "5" {
		t.Errorf("raw = %s %v", got.Body, h)
	}
	got, aborted := serve(rest.Answer{Status: 200, Content: io.NopCloser(strings.NewReader("bits")), Size: 4, ContentType: "application/gzip"})
	if got.Body.String() != "bits" || got.Header().Get("Content-Length") != "4" || aborted {
		t.Errorf("content = %s %v, aborted %t", got.Body, got.Header(), aborted)
	}
	if _, aborted := serve(rest.Answer{Status: 200, Content: brokenBody{strings.NewReader("bi")}, ContentType: "x/y"}); !aborted {
		t.Error("content that broke off looks like the whole")
	}
}
