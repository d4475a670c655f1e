package auth

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestClientsOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // failures delay the next attempt
		w := newWorld(t)
		admin := as(w.admin())
		body := map[string]any{
			"client_id": "sender", "client_secret": "first", "name": "Sender", "authorized_grant_types": []string{"client_credentials"},
			"authorities": "notifications.write,emails.write", "scope": []string{}, "access_token_validity": 3600,
		}
		a := w.do("POST", "/uaa/oauth/clients", body, admin)
		a.want(t, "create", 201, "")
		if strings.Contains(a.raw, "first") || a.text("client_id") != "sender" || len(a.body["authorities"].([]any)) != 2 || a.body["access_token_validity"] != 3600.0 {
			t.Errorf("create: %s", a.raw)
		}
		w.do("POST", "/uaa/oauth/clients", body, admin).want(t, "again", 409, "invalid_client")
		token := w.clientToken("sender", "first")
		if p := must(w.s.Verify(token)); !cmp.Equal(p.Scopes, []string{"notifications.write", "emails.write"}) {
			t.Errorf("scopes = %v", p.Scopes)
		}
		path := "/uaa/oauth/clients/sender"
		w.do("GET", path, nil, as(token)).want(t, "itself", 200, "")
		w.do("GET", "/uaa/oauth/clients/cf", nil, as(token)).want(t, "another", 403, "insufficient_scope")
		w.do("GET", "/uaa/oauth/clients/none", nil, admin).want(t, "unknown", 404, "not_found")

		w.do("PUT", path, map[string]any{"client_id": "sender", "authorized_grant_types": []string{"client_credentials"}, "authorities": []string{"emails.write"}}, admin).want(t, "put", 200, "")
		w.do("PUT", path, map[string]any{"client_id": "other", "authorized_grant_types": []string{"password"}}, admin).want(t, "put of another id", 400, "invalid_client")
		w.do("PUT", "/uaa/oauth/clients/none", body, admin).want(t, "put of another id", 400, "invalid_client")
		if c := must(w.s.Accounts().Client("sender")); c.Name != "" || c.AccessValidity != 0 || !cmp.Equal(c.Authorities, []string{"emails.write"}) {
			t.Errorf("after PUT: %+v", c)
		}

		secret := func(old, fresh, token string) answer {
			return w.do("PUT", path+"/secret", map[string]string{"oldSecret": old, "secret": fresh}, as(token))
		}
		secret("wrong", "second", token).want(t, "wrong old secret", 401, "unauthorized")
		secret("", "second", token).want(t, "no old secret", 401, "unauthorized")
		secret("first", "", token).want(t, "empty secret", 400, "invalid_client")
		secret("first", "second", token).want(t, "own secret", 200, "")
		secret("second", "third", token).want(t, "with a token from before", 401, "invalid_token")
		secret("", "third", w.admin()).want(t, "by an administrator", 200, "")
		w.clientToken("sender", "third")
		w.do("PUT", "/uaa/oauth/clients/cf/secret", map[string]string{"secret": "x"}, admin).want(t, "secret of cf", 403, "access_denied")

		a = w.do("GET", "/uaa/oauth/clients?filter=client_id+eq+%22SENDER%22", nil, admin)
		if a.code != 200 || a.body["totalResults"] != 1.0 {
			t.Errorf("list: %d %s", a.code, a.raw)
		}
		if a := w.do("GET", "/uaa/oauth/clients?count=1&sortBy=client_id&sortOrder=descending", nil, admin); a.body["totalResults"] != 3.0 || !strings.Contains(a.raw, `"ssh-proxy"`) {
			t.Errorf("list: %s", a.raw)
		}
		w.do("DELETE", "/uaa/oauth/clients/cf", nil, admin).want(t, "delete of cf", 403, "access_denied")
		must(w.s.roles.Put(Role{Type: OrgUser, User: "sender", Org: "o"}))
		if a := w.do("DELETE", path, nil, admin); a.code != 200 || a.text("client_id") != "sender" {
			t.Errorf("delete: %d %s", a.code, a.raw)
		}
		if left := must(w.s.roles.OfUser("sender")); len(left) != 0 {
			t.Errorf("roles: %v", left)
		}
		w.do("DELETE", path, nil, admin).want(t, "delete again", 404, "not_found")
		want := []string{
			"audit.client.create admin sender", "audit.client.create.refused admin sender",
			"audit.client.update admin sender", "audit.client.update.refused admin sender", "audit.client.update.refused admin none",
			"audit.client.secret.refused sender sender", "audit.client.secret.refused sender sender", "audit.client.secret.refused sender sender",
			"audit.client.secret sender sender", "audit.client.secret admin sender", "audit.client.secret.refused admin cf",
			"audit.client.delete.refused admin cf", "audit.client.delete admin sender", "audit.client.delete.refused admin sender",
		}
		if diff := cmp.Diff(want, w.events); diff != "" {
			t.Errorf("events:\n%s", diff)
		}
	})
}

// A caller with only clients.write cannot create a client with more scopes than its
// own, nor change one that has more.
func TestClientsWriteDoesNotRaise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	writer := as(w.client("writer", "s", "clients.write", "emails.write"))
	w.client("strong", "s", "uaa.admin")
	body := func(authorities ...string) map[string]any {
		return map[string]any{"client_id": "new", "client_secret": "s", "authorized_grant_types": []string{"client_credentials"}, "authorities": authorities}
	}
	w.do("POST", "/uaa/oauth/clients", body("uaa.admin"), writer).want(t, "more than its own", 403, "insufficient_scope")
	w.do("POST", "/uaa/oauth/clients", body("emails.write"), writer).want(t, "its own", 201, "")
	strong := map[string]any{"authorized_grant_types": []string{"client_credentials"}, "authorities": []string{"emails.write"}}
	w.do("PUT", "/uaa/oauth/clients/strong", strong, writer).want(t, "a stronger one", 403, "insufficient_scope")
	w.do("PUT", "/uaa/oauth/clients/strong/secret", map[string]string{"secret": "x"}, writer).want(t, "a stronger one's secret", 403, "insufficient_scope")
	all := map[string]any{"client_id": "all", "authorized_grant_types": []string{"password"}, "scope": []string{"*"}}
	w.do("POST", "/uaa/oauth/clients", all, writer).want(t, "any scope", 403, "insufficient_scope")
}

// Every endpoint that needs a token is called with every kind of token.
func TestRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.user("bob", "secret")
	eve := w.user("eve", "secret")
	tokens := map[string]string{"bob": first(w.tokens("bob", "secret"))}
	for id, scope := range map[string]string{
		"scim-read": "scim.read", "scim-write": "scim.write", "clients-read": "clients.read", "clients-write": "clients.write",
		"clients-admin": "clients.admin", "uaa-admin": "uaa.admin", "cc-admin": "cloud_controller.admin", "none": "uaa.none",
	} {
		tokens[id] = w.client(id, "s", scope)
	}
	// Requests that fail after the permission check, or change nothing.
	for _, tc := range []struct{ request, allowed string }{
		{"GET /uaa/Users", "scim-read uaa-admin"},
		{"GET /uaa/Users/" + eve.GUID, "scim-read uaa-admin"},
		{"GET /uaa/Users/" + bob.GUID, "bob scim-read uaa-admin"},
		{"GET /uaa/Users/unknown", "scim-read uaa-admin"},
		{"POST /uaa/Users", "scim-write uaa-admin"},
		{"PUT /uaa/Users/" + bob.GUID, "scim-write uaa-admin"},
		{"PATCH /uaa/Users/unknown", "scim-write uaa-admin"},
		{"DELETE /uaa/Users/unknown", "scim-write uaa-admin"},
		{"PUT /uaa/Users/" + eve.GUID + "/password", "uaa-admin"},
		{"PUT /uaa/Users/unknown/password", "uaa-admin"},
		{"GET /uaa/Groups", "scim-read uaa-admin"},
		{"GET /uaa/Groups/openid", "scim-read uaa-admin"},
		{"GET /uaa/Groups/openid/members", "scim-read uaa-admin"},
		{"POST /uaa/Groups", "uaa-admin"},
		{"PUT /uaa/Groups/unknown", "uaa-admin"},
		{"DELETE /uaa/Groups/unknown", "uaa-admin"},
		{"POST /uaa/Groups/uaa.admin/members", "uaa-admin"},
		{"DELETE /uaa/Groups/uaa.admin/members/unknown", "uaa-admin"},
		{"GET /uaa/oauth/clients", "clients-read clients-admin uaa-admin"},
		{"GET /uaa/oauth/clients/cf", "clients-read clients-admin uaa-admin"},
		{"GET /uaa/oauth/clients/none", "clients-read clients-admin none uaa-admin"},
		{"POST /uaa/oauth/clients", "clients-write clients-admin uaa-admin"},
		{"PUT /uaa/oauth/clients/unknown", "clients-write clients-admin uaa-admin"},
		{"DELETE /uaa/oauth/clients/unknown", "clients-write clients-admin uaa-admin"},
		{"PUT /uaa/oauth/clients/unknown/secret", "clients-admin uaa-admin"},
		{"DELETE /uaa/oauth/token/revoke/unknown", "uaa-admin"},
		{"DELETE /uaa/oauth/token/revoke/user/unknown", "uaa-admin"},
		{"DELETE /uaa/oauth/token/revoke/client/unknown", "uaa-admin"},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		w.do(method, path, "{}").want(t, tc.request+" without a token", 401, "unauthorized")
		w.do(method, path, "{}", as("x.y.z")).want(t, tc.request+" with a bad token", 401, "invalid_token")
		for name, token := range tokens {
			a := w.do(method, path, "{}", as(token))
			want := strings.Contains(" "+tc.allowed+" ", " "+name+" ")
			if got := a.code != 403 && a.code != 401; got != want || a.code >= 500 {
				t.Errorf("%s as %s: %d, allowed should be %t: %s", tc.request, name, a.code, want, a.raw)
			}
			if !want {
				a.want(t, tc.request+" as "+name, 403, "insufficient_scope")
			}
		}
	}
}

func TestStringList(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		`["a","b"]`: {"a", "b"}, `"a,b c"`: {"a", "b", "c"}, `null`: nil, `""`: {}, `[]`: {},
	} {
		var l stringList
		if err := l.UnmarshalJSON([]byte(in)); err != nil || len(l) != len(want) || (len(l) > 0 && !cmp.Equal([]string(l), want)) {
			t.Errorf("%s = %v, %v", in, l, err)
		}
	}
	for _, in := range []string{`7`, `[7]`, `{}`, `[`} {
		if err := new(stringList).UnmarshalJSON([]byte(in)); err == nil {
			t.Errorf("%s is read", in)
		}
	}
	if !errors.Is(clientProblem(errMember), errMember) {
		t.Error("an error that is not about clients is changed")
	}
}
