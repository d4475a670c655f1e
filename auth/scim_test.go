package auth

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestUsersOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := as(w.admin())
	body := map[string]any{
		"userName": "bob", "password": "secret", "origin": "",
		"name":   map[string]string{"familyName": "Smith", "givenName": "Bob"},
		"emails": []map[string]any{{"value": "other@example.com"}, {"value": "bob@example.com", "primary": true}},
	}
	a := w.do("POST", "/uaa/Users", body, admin)
	a.want(t, "create", 201, "")
	id := a.text("id")
	if a.text("userName") != "bob" || a.text("origin") != "uaa" || a.header.Get("ETag") != `"0"` || strings.Contains(a.raw, "secret") {
		t.Errorf("create: %s", a.raw)
	}
	if strings.Contains(strings.ToLower(a.raw), "hash") {
		t.Errorf("the hash is shown: %s", a.raw)
	}
	w.do("POST", "/uaa/Users", body, admin).want(t, "again", 409, "scim_resource_already_exists")
	w.do("POST", "/uaa/Users", map[string]string{"userName": "eve"}, admin).want(t, "without a password", 400, "invalid_scim_resource")
	w.do("POST", "/uaa/Users", map[string]string{"userName": "eve", "origin": "ldap"}, admin).want(t, "of another origin", 201, "")

	path := "/uaa/Users/" + id
	a = w.do("PUT", path, map[string]any{"userName": "bob", "emails": []scimEmail{{Value: "new@example.com"}}}, admin, header("If-Match", "0"))
	a.want(t, "put", 200, "")
	if u := must(w.s.Accounts().User(id)); u.Email != "new@example.com" || u.GivenName != "" || !u.Active || u.Version != 1 {
		t.Errorf("after PUT: %+v", u)
	}
	w.do("PUT", path, map[string]any{"userName": "bob"}, admin, header("If-Match", `"0"`)).want(t, "put of an old version", 409, "scim_resource_conflict")
	w.do("PUT", path, map[string]any{"active": true}, admin).want(t, "put without a name", 400, "invalid_scim_resource")
	w.do("PATCH", path, map[string]any{"name": map[string]string{"givenName": "Robert"}}, admin, header("If-Match", "*")).want(t, "patch", 200, "")
	w.do("PATCH", path, map[string]any{"meta": map[string]any{"attributes": []string{"emails"}}, "active": false}, admin).want(t, "patch away", 200, "")
	if u := must(w.s.Accounts().User(id)); u.GivenName != "Robert" || u.Email != "" || u.Active || u.Name != "bob" {
		t.Errorf("after PATCH: %+v", u)
	}
	w.do("GET", path, nil, admin).want(t, "get", 200, "")
	must(w.s.roles.Put(Role{Type: OrgUser, User: id, Org: "o"}))
	if a := w.do("DELETE", path, nil, admin); a.code != 200 || a.text("id") != id {
		t.Errorf("delete: %d %s", a.code, a.raw)
	}
	if left := must(w.s.roles.OfUser(id)); len(left) != 0 {
		t.Errorf("roles of a deleted user: %v", left)
	}
	for _, method := range []string{"GET", "DELETE", "PATCH"} {
		w.do(method, path, map[string]any{}, admin).want(t, method+" of nobody", 404, "scim_resource_not_found")
	}
	want := []string{
		"audit.user.create admin bob", "audit.user.create.refused admin bob", "audit.user.create.refused admin eve", "audit.user.create admin eve",
		"audit.user.update admin bob", "audit.user.update.refused admin bob", "audit.user.update.refused admin bob",
		"audit.user.update admin bob", "audit.user.update admin bob", "audit.user.delete admin bob",
		"audit.user.delete.refused admin ", "audit.user.update.refused admin ",
	}
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events:\n%s", diff)
	}
}

func TestListUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 10 {
		w.user(fmt.Sprintf("u%d", i), "secret")
	}
	must(w.s.Accounts().CreateUser(NewUser{Name: "U3", Origin: "ldap"}))
	must(w.s.Accounts().CreateUser(NewUser{Name: "away", Origin: "saml", Inactive: true, Email: `odd"one@example.com`}))
	admin := as(w.admin())
	for name, tc := range map[string]struct {
		query string
		total int
		names string
	}{
		"all":           {"", 13, "admin away u0 u1 u2 U3 u3 u4 u5 u6 u7 u8 u9"},
		"by name":       {`filter=userName eq "u3"`, 2, "U3 u3"},
		"and origin":    {`filter=userName eq "U3" and origin eq "uaa"`, 1, "u3"},
		"or":            {`filter=username eq "u1" or username eq "u2" and origin eq "none"`, 1, "u1"},
		"parentheses":   {`filter=(username eq "u1" or username eq "u2") and origin eq "none"`, 0, ""},
		"by mail":       {`filter=email eq "u4@example.com"`, 1, "u4"},
		"by emails":     {`filter=emails.value sw "U5@"`, 1, "u5"},
		"escaped quote": {`filter=emails co "odd\"one"`, 1, "away"},
		"single quotes": {`filter=userName eq 'u6'`, 1, "u6"},
		"by guid":       {`filter=Id eq "` + must(w.s.Accounts().UserByName("u7", "")).GUID + `"`, 1, "u7"},
		"not active":    {`filter=active eq false`, 1, "away"},
		"not equal":     {`filter=origin ne "uaa"`, 2, "away U3"},
		"ends with":     {`filter=userName ew "9"`, 1, "u9"},
		"present":       {`filter=emails pr and origin eq "saml"`, 1, "away"},
		"nobody":        {`filter=userName eq "x"`, 0, ""},
		"page":          {"startIndex=3&count=2", 13, "u0 u1"},
		"last page":     {"startIndex=13&count=5", 13, "u9"},
		"beyond":        {"startIndex=14", 13, ""},
		"far beyond":    {"startIndex=9223372036854775807&count=9223372036854775807", 13, ""},
		"none":          {"count=0", 13, ""},
		"sorted":        {"sortBy=userName&sortOrder=descending&count=2", 13, "u9 u8"},
		"by origin":     {"sortBy=origin&count=2", 13, "U3 away"},
		"from zero":     {"startIndex=0&count=1", 13, "admin"},
	} {
		t.Run(name, func(t *testing.T) {
			q := strings.NewReplacer(" ", "%20", `"`, "%22", `\`, "%5C").Replace(tc.query)
			a := w.do("GET", "/uaa/Users?"+q, nil, admin)
			a.want(t, name, 200, "")
			var names []string
			resources, ok := a.body["resources"].([]any)
			if !ok {
				t.Fatalf("resources is missing: %s", a.raw)
			}
			for _, r := range resources {
				names = append(names, r.(map[string]any)["userName"].(string))
			}
			if got := strings.Join(names, " "); got != tc.names || a.body["totalResults"] != float64(tc.total) {
				t.Errorf("%s: %q of %v, want %q of %d", tc.query, got, a.body["totalResults"], tc.names, tc.total)
			}
		})
	}
	a := w.do("GET", "/uaa/Users?attributes=id,userName&count=1", nil, admin)
	if r := a.body["resources"].([]any)[0].(map[string]any); len(r) != 2 || r["userName"] != "admin" {
		t.Errorf("attributes: %v", r)
	}
	for _, bad := range []string{
		"filter=userName", "filter=userName eq", "filter=x eq 1", "filter=userName is 1", `filter=userName eq "`, "filter=(userName eq 1", "filter=userName eq 1)",
		"filter=userName eq 1 and", "filter=userName eq 1 or or", `filter="userName" eq 1`, "filter=" + strings.Repeat("(", 100) + "userName pr" + strings.Repeat(")", 100),
		"filter=" + strings.Repeat("x", maxFilter+1), "startIndex=x", "count=-1", "sortBy=x", "sortOrder=x",
	} {
		key, value, _ := strings.Cut(bad, "=")
		w.do("GET", "/uaa/Users?"+url.Values{key: {value}}.Encode(), nil, admin).want(t, bad, 400, "scim")
	}
}

func TestPasswordOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // failures delay the next attempt
		w := newWorld(t)
		bob, eve := w.user("bob", "secret"), w.user("eve", "secret")
		token, _ := w.tokens("bob", "secret")
		put := func(id, old, fresh, token string) answer {
			return w.do("PUT", "/uaa/Users/"+id+"/password", map[string]string{"oldPassword": old, "password": fresh}, as(token))
		}
		put(bob.GUID, "wrong", "new", token).want(t, "wrong old one", 401, "unauthorized")
		put(bob.GUID, "", "new", token).want(t, "no old one", 401, "unauthorized")
		put(bob.GUID, "secret", "secret", token).want(t, "the same", 422, "invalid_password")
		put(bob.GUID, "secret", "", token).want(t, "empty", 422, "invalid_password")
		put(bob.GUID, "secret", strings.Repeat("x", 73), token).want(t, "too long", 422, "invalid_password")
		put(eve.GUID, "secret", "new", token).want(t, "of another", 403, "insufficient_scope")
		put("none", "secret", "new", token).want(t, "of nobody", 403, "insufficient_scope")
		put(bob.GUID, "secret", "new", token).want(t, "own", 200, "")
		put(bob.GUID, "new", "newer", token).want(t, "with a token from before", 401, "invalid_token")
		w.tokens("bob", "new")
		admin := w.admin()
		put(bob.GUID, "", "newest", admin).want(t, "by an administrator", 200, "")
		put("none", "", "newest", admin).want(t, "of nobody, by an administrator", 404, "scim_resource_not_found")
		put(must(w.s.Accounts().UserByName("admin", "")).GUID, "", "mine", admin).want(t, "administrator's own without the old one", 401, "unauthorized")
		w.tokens("bob", "newest")
		if w.events[0] != "audit.user.password.refused bob bob" || !slices.Contains(w.events, "audit.user.password admin bob") {
			t.Errorf("events = %v", w.events)
		}
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.user("bob", "secret")
	access, _ := w.tokens("bob", "secret")
	admin := as(w.admin())
	scopes := func() []string { return must(w.s.Accounts().User(bob.GUID)).Groups }
	member := map[string]string{"value": bob.GUID, "origin": "uaa", "type": "USER"}
	const group = "/uaa/Groups/cloud_controller.global_auditor"
	w.do("POST", group+"/members", member, as(access)).want(t, "by himself", 403, "insufficient_scope")
	w.do("POST", group+"/members", member, admin).want(t, "add", 201, "")
	w.do("POST", group+"/members", member, admin).want(t, "add again", 409, "member_already_exists")
	w.do("POST", "/uaa/Groups/openid/members", member, admin).want(t, "a default one", 409, "member_already_exists")
	w.do("POST", group+"/members", map[string]string{"value": "none"}, admin).want(t, "nobody", 404, "scim_resource_not_found")
	w.do("POST", group+"/members", map[string]string{}, admin).want(t, "no value", 400, "invalid_scim_resource")
	w.do("POST", "/uaa/Groups/mistyped/members", member, admin).want(t, "no such group", 404, "scim_resource_not_found")
	if got := scopes(); !cmp.Equal(got, []string{ScopeGlobalAuditor}) {
		t.Errorf("groups = %v", got)
	}
	if p := must(w.s.Verify(first(w.tokens("bob", "secret")))); !p.GlobalReader() || p.Admin() {
		t.Errorf("principal = %+v", p)
	}
	a := w.do("GET", "/uaa/Groups?filter="+url.QueryEscape(`displayName eq "`+ScopeGlobalAuditor+`"`)+"&attributes=members", nil, admin)
	if !strings.Contains(a.raw, bob.GUID) || a.body["totalResults"] != 1.0 {
		t.Errorf("list: %s", a.raw)
	}
	if a := w.do("GET", group, nil, admin); a.code != 200 || !strings.Contains(a.raw, bob.GUID) {
		t.Errorf("get: %s", a.raw)
	}
	w.do("GET", "/uaa/Groups/none", nil, admin).want(t, "unknown", 404, "scim_resource_not_found")
	w.do("DELETE", group+"/members/"+bob.GUID, nil, admin).want(t, "remove", 200, "")
	w.do("DELETE", group+"/members/"+bob.GUID, nil, admin).want(t, "remove again", 404, "member_not_found")
	if got := scopes(); len(got) != 0 {
		t.Errorf("groups = %v", got)
	}
}

// A created group is a scope that can be given to users. It is deleted with its last
// use.
func TestCreatedGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bob := w.user("bob", "secret")
	admin := as(w.admin())
	const path = "/uaa/Groups/shop.read"
	body := map[string]any{"displayName": "shop.read", "description": "who may look", "members": []any{map[string]string{"value": bob.GUID}}}
	a := w.do("POST", "/uaa/Groups", body, admin)
	if a.want(t, "create", 201, ""); a.body["id"] != "shop.read" || a.body["description"] != "who may look" || !strings.Contains(a.raw, bob.GUID) {
		t.Errorf("made: %s", a.raw)
	}
	w.do("POST", "/uaa/Groups", body, admin).want(t, "again", 409, "scim_resource_already_exists")
	w.do("POST", "/uaa/Groups", map[string]any{"displayName": "a b"}, admin).want(t, "no scope", 400, "invalid_scim_resource")
	w.do("POST", "/uaa/Groups", map[string]any{"displayName": "x.y", "members": []any{map[string]string{"value": "none"}}}, admin).want(t, "nobody", 404, "scim_resource_not_found")
	w.do("GET", "/uaa/Groups/x.y", nil, admin).want(t, "refused is not made", 404, "scim_resource_not_found")
	before := first(w.tokens("bob", "secret"))
	if p := must(w.s.Verify(before)); !p.Has("shop.read") {
		t.Errorf("the token has %v, want the group", p.Scopes)
	}
	if a := w.do("GET", path+"/members", nil, admin); !strings.Contains(a.raw, bob.GUID) {
		t.Errorf("members: %s", a.raw)
	}
	w.do("PUT", path, map[string]any{"displayName": "other"}, admin).want(t, "rename", 400, "invalid_scim_resource")
	w.do("PUT", path, map[string]any{"displayName": "shop.read", "members": []any{}}, admin).want(t, "empty", 200, "")
	if p := must(w.s.Verify(before)); p.Has("shop.read") {
		t.Errorf("a token of before still has %v", p.Scopes)
	}
	w.do("GET", path, nil, admin).want(t, "an empty one stays", 200, "")
	w.do("DELETE", path, nil, admin).want(t, "delete", 200, "")
	w.do("DELETE", path, nil, admin).want(t, "delete again", 404, "scim_resource_not_found")
	w.do("DELETE", "/uaa/Groups/uaa.admin", nil, admin).want(t, "one of the platform", 400, "invalid_scim_resource")
}

func first[T, U any](v T, _ U) T { return v }

func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		`userName eq "x"`, `userName eq "x" and origin eq "uaa"`, `(id pr or active eq true) and email co "a\"b"`, `((`, `"`, `userName sw 'é' or`, "",
	} {
		f.Add(seed, "x")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		parsed, err := parseFilter(text, userAttrs)
		if err != nil {
			if err.Error() == "" || parsed != nil {
				t.Errorf("%q: %v with %p", text, err, parsed)
			}
		} else {
			parsed(func(attr string) []string {
				if !slices.Contains(userAttrs, attr) {
					t.Errorf("%q asks for %q", text, attr)
				}
				return []string{value}
			})
		}
		// Any name can be quoted: the filter finds it and has no other effect.
		quoted := `userName eq "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
		exact, err := parseFilter(quoted, userAttrs)
		if len(quoted) > maxFilter {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", quoted, err)
		}
		if !exact(func(string) []string { return []string{value} }) {
			t.Errorf("%q does not find %q", quoted, value)
		}
		if exact(func(string) []string { return []string{value + "x"} }) {
			t.Errorf("%q finds more than %q", quoted, value)
		}
	})
}
