package api

import (
	"errors"
	"testing"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

func roleBody(kind, noun, guid, user string) string {
	return `{"type":"` + kind + `","relationships":{"` + noun + `":{"data":{"guid":"` + guid + `"}},"user":{"data":` + user + `}}}`
}

func byName(name string) string { return `{"username":"` + name + `","origin":"uaa"}` }
func byGUID(guid string) string { return `{"guid":"` + guid + `"}` }

// A client sends these requests after it created a space: the same org role twice, and
// both space roles.
func TestRolesOfNewSpace(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.user("ann")
	boss := w.user("boss")
	w.grant(boss, auth.OrgManager, w.space.Org)
	token := w.login("boss")
	post := func(kind, noun, guid string) (int, string) {
		got := w.as(token, "POST", "/v3/roles", roleBody(kind, noun, guid, byName("ann")))
		return got.Code, got.Body.String()
	}
	if code, body := post("organization_user", "organization", w.space.Org); code != 201 {
		t.Fatalf("first role in the org = %d %s", code, body)
	}
	if code, body := post("space_manager", "space", w.space.GUID); code != 201 {
		t.Fatalf("space manager = %d %s", code, body)
	}
	w.refused(token, "POST /v3/roles", roleBody("organization_user", "organization", w.space.Org, byName("Ann")), "422 User 'ann' already has 'organization_user' role in organization 'local'.")
	if code, body := post("space_developer", "space", w.space.GUID); code != 201 {
		t.Fatalf("space developer = %d %s", code, body)
	}
	w.refused(token, "POST /v3/roles", roleBody("space_developer", "space", w.space.GUID, byName("ann")), "422 User 'ann' already has 'space_developer' role in space 'dev'.")
	w.wantNames(w.login("ann"), "/v3/spaces", "dev")
}

// OAuth clients can have roles under their client ID.
func TestRoleOfClient(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	token := w.client("robot", auth.ScopeRead, auth.ScopeWrite)
	w.wantNames(token, "/v3/spaces")
	w.want(201, "POST", "/v3/roles", roleBody("organization_user", "organization", w.space.Org, byGUID("robot")), nil)
	var role v3.Role
	w.want(201, "POST", "/v3/roles", roleBody("space_developer", "space", w.space.GUID, byGUID("robot")), &role)
	w.wantNames(token, "/v3/spaces", "dev")
	got := w.as(token, "POST", "/v3/apps", `{"name":"shop","relationships":{"space":{"data":{"guid":"`+w.space.GUID+`"}}}}`)
	if got.Code != 201 {
		t.Fatalf("POST /v3/apps = %d %s, want 201", got.Code, got.Body)
	}
	golden(t, "role-of-client", w.request("GET", "/v3/roles/"+role.GUID+"?include=user,space,organization", "").Body.Bytes())
}

func TestRolesRefused(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	ann := w.user("ann")
	org, space := w.space.Org, w.space.GUID
	for _, tt := range []struct{ name, body, detail string }{
		{"unknown type", roleBody("king", "space", space, byGUID(ann)), "Role type must be one of the allowed types"},
		{"no place", `{"type":"space_manager","relationships":{"user":{"data":` + byGUID(ann) + `}}}`, "must be associated with a space"},
		{"org role at a space", roleBody("organization_user", "space", space, byGUID(ann)), "must be associated with an organization"},
		{"space role at an org", roleBody("space_manager", "organization", org, byGUID(ann)), "must be associated with a space"},
		{"both places", `{"type":"space_manager","relationships":{"user":{"data":` + byGUID(ann) + `},"space":{"data":` + byGUID(space) + `},"organization":{"data":` + byGUID(org) + `}}}`, "Cannot pass both"},
		{"no user", `{"type":"space_manager","relationships":{"space":{"data":` + byGUID(space) + `}}}`, "User must have"},
		{"two names", roleBody("organization_user", "organization", org, `{"guid":"x","username":"ann"}`), "Cannot specify both"},
		{"unknown org", roleBody("organization_user", "organization", "x", byGUID(ann)), "Invalid organization."},
		{"unknown space", roleBody("space_manager", "space", "x", byGUID(ann)), "Invalid space."},
		{"unknown guid", roleBody("organization_user", "organization", org, byGUID("x")), "Invalid user."},
		{"unknown name", roleBody("organization_user", "organization", org, byName("zoe")), "No user exists with the username 'zoe' and origin 'uaa'."},
		{"unknown name and no origin", roleBody("organization_user", "organization", org, `{"username":"zoe"}`), "No user exists with the username 'zoe'."},
		{"not in the org", roleBody("space_manager", "space", space, byGUID(ann)), "Users cannot be assigned roles in a space if they do not have a role in that space's organization."},
		{"not in the org, by name", roleBody("space_manager", "space", space, byName("ann")), "Users cannot be assigned roles in a space"},
		{"unknown, in a space", roleBody("space_manager", "space", space, byName("zoe")), "Users cannot be assigned roles in a space"},
	} {
		t.Run(tt.name, func(t *testing.T) { w.refused("", "POST /v3/roles", tt.body, "422 "+tt.detail) })
	}
	must(w.c.Auth.Accounts().CreateUser(auth.NewUser{Name: "ann", Origin: "ldap"}))(t)
	w.refused("", "POST /v3/roles", roleBody("organization_user", "organization", org, `{"username":"ann"}`), "422 exists in the following origins: ldap, uaa.")
	if roles := must(w.c.Roles.All())(t); len(roles) > 0 {
		t.Errorf("roles = %+v, want none", roles)
	}
}

// Space managers can assign roles in their space only.
func TestWhoAssignsRoles(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	org, space := w.space.Org, w.space.GUID
	other := w.createSpace(org, "other")
	for name, kind := range map[string]auth.RoleType{"manager": auth.SpaceManager, "dev": auth.SpaceDeveloper} {
		guid := w.user(name)
		w.grant(guid, auth.OrgUser, org)
		w.grant(guid, kind, space)
	}
	w.grant(w.user("ann"), auth.OrgUser, org)
	manager, dev := w.login("manager"), w.login("dev")
	w.refused(dev, "POST /v3/roles", roleBody("space_auditor", "space", space, byName("ann")), "403 You are not authorized")
	w.refused(manager, "POST /v3/roles", roleBody("organization_auditor", "organization", org, byName("ann")), "403 You are not authorized")
	w.refused(manager, "POST /v3/roles", roleBody("space_auditor", "space", other.GUID, byName("ann")), "422 Invalid space.")
	got := w.as(manager, "POST", "/v3/roles", roleBody("space_auditor", "space", space, byName("ann")))
	if got.Code != 201 {
		t.Fatalf("a manager gives a role: %d %s", got.Code, got.Body)
	}
	role := must(rest.DecodeBytes[v3.Role](got.Body.Bytes()))(t)
	w.refused(dev, "DELETE /v3/roles/"+role.GUID, "", "403 You are not authorized")
	w.wantNames(dev, "/v3/roles?types=space_auditor", "space_auditor")
	got = w.as(manager, "DELETE", "/v3/roles/"+role.GUID, "")
	if _, err := w.c.Roles.Get(role.GUID); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("a role that was taken away still holds: %v", err)
	}
	if got.Code != 202 {
		t.Errorf("a manager takes a role: %d %s", got.Code, got.Body)
	}
	must(w.c.Registry.UpdateFlag(app.FlagSetRoles, func(f *app.Flag) { f.Enabled = false }))(t)
	got = w.as(manager, "POST", "/v3/roles", roleBody("space_supporter", "space", space, byName("ann")))
	if got.Code != 403 {
		t.Fatalf("by name without the flag: %d %s, want 403", got.Code, got.Body)
	}
	wantError(t, got, "CF-FeatureDisabled", "Feature Disabled: set_roles_by_username")
}

func TestListAndDeleteRoles(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	org, space := w.space.Org, w.space.GUID
	ann, bob := w.user("ann"), w.user("bob")
	member := w.grant(ann, auth.OrgUser, org)
	dev := w.grant(ann, auth.SpaceDeveloper, space)
	w.grant(bob, auth.OrgManager, org)
	w.wantNames("", "/v3/roles", "organization_user", "space_developer", "organization_manager")
	w.wantNames("", "/v3/roles?user_guids="+bob, "organization_manager")
	w.wantNames("", "/v3/roles?types=organization_user,space_developer&user_guids="+ann, "organization_user", "space_developer")
	w.wantNames("", "/v3/roles?space_guids="+space, "space_developer")
	w.wantNames("", "/v3/roles?organization_guids="+org, "organization_user", "organization_manager")
	w.wantNames("", "/v3/roles?guids="+dev.GUID, "space_developer")
	w.refused("", "GET /v3/roles?order_by=name", "", "400 Order by can only be")
	golden(t, "roles", w.request("GET", "/v3/roles?include=user,organization,space", "").Body.Bytes())

	w.refused("", "DELETE /v3/roles/"+member.GUID, "", "422 Cannot delete organization_user role while user has roles in spaces in that organization.")
	w.refused("", "DELETE /v3/roles/x", "", "404 Role not found")
	for _, role := range []auth.Role{dev, member} {
		if j := w.finish(w.want(202, "DELETE", "/v3/roles/"+role.GUID, "", nil)); j.State != v3.JobComplete || j.Operation != "role.delete" {
			t.Fatalf("job = %+v", j)
		}
	}
	w.wantNames("", "/v3/roles", "organization_manager")
	wantEvents(t, w, ann, "audit.user.space_developer_remove", "audit.user.organization_user_remove")
}

func TestUsers(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	ann := w.user("ann")
	w.grant(ann, auth.OrgUser, w.space.Org)
	w.grant(ann, auth.SpaceDeveloper, w.space.GUID)
	bob := w.user("bob")
	w.grant(bob, auth.OrgManager, w.space.Org)
	w.user("zoe")
	w.wantNames("", "/v3/users", "admin", "ann", "bob", "zoe")
	w.wantNames(w.login("ann"), "/v3/users", "ann", "bob")
	w.wantNames(w.login("zoe"), "/v3/users", "zoe")
	w.wantNames("", "/v3/users?usernames=ANN,zoe", "ann", "zoe")
	w.wantNames("", "/v3/users?partial_usernames=o&origins=uaa", "bob", "zoe")
	w.wantNames("", "/v3/users?guids="+bob, "bob")
	w.wantNames("", "/v3/organizations/"+w.space.Org+"/users", "ann", "bob")
	w.wantNames("", "/v3/spaces/"+w.space.GUID+"/users", "ann")
	w.refused("", "GET /v3/users?origins=uaa", "", "400 Origins filter cannot be provided without usernames")
	w.refused("", "GET /v3/users?usernames=a&partial_usernames=b", "", "400 cannot be provided together")
	w.refused(w.login("zoe"), "GET /v3/users/"+ann, "", "404 User not found")
	golden(t, "user", w.request("GET", "/v3/users/"+ann, "").Body.Bytes())

	w.want(200, "PATCH", "/v3/users/"+ann, `{"metadata":{"labels":{"team":"red"}}}`, nil)
	w.wantNames("", "/v3/users?label_selector=team%3Dred", "ann")
	if j := w.finish(w.want(202, "DELETE", "/v3/users/"+ann, "", nil)); j.State != v3.JobComplete {
		t.Fatalf("job = %+v", j)
	}
	w.refused("", "GET /v3/users/"+ann, "", "404 User not found")
	w.wantNames("", "/v3/spaces/"+w.space.GUID+"/users")
	w.wantNames("", "/v3/users", "admin", "bob", "zoe")
	var back v3.User
	w.want(201, "POST", "/v3/users", `{"guid":"`+ann+`"}`, &back)
	if back.PresentationName != "ann" || len(back.Metadata.Labels) > 0 {
		t.Errorf("user that came back = %+v, want nothing of before but the account", back)
	}
}

func TestCreateUsers(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	ann := w.user("ann") // as clients do it: the account first
	var u v3.User
	w.want(201, "POST", "/v3/users", `{"guid":"`+ann+`"}`, &u)
	if u.Username == nil || *u.Username != "ann" || *u.Origin != "uaa" || u.GUID != ann {
		t.Errorf("user = %+v", u)
	}
	w.refused("", "POST /v3/users", `{"guid":"`+ann+`"}`, "422 User with guid '"+ann+"' already exists.")
	w.want(201, "POST", "/v3/users", `{"username":"lee","origin":"ldap"}`, &u)
	if *u.Username != "lee" || *u.Origin != "ldap" {
		t.Errorf("user of another origin = %+v", u)
	}
	w.want(201, "POST", "/v3/users", `{"guid":"some-robot"}`, &u)
	if u.Username != nil || u.PresentationName != "some-robot" {
		t.Errorf("user without an account = %+v", u)
	}
	w.refused("", "POST /v3/users", `{"username":"tom","origin":"uaa"}`, "422 Origin cannot be 'uaa'")
	w.refused("", "POST /v3/users", `{"username":"tom"}`, "422 must be given")
	w.refused("", "POST /v3/users", `{"guid":"a","username":"tom"}`, "422 Cannot specify")
	w.refused(w.login("ann"), "POST /v3/users", `{"guid":"x"}`, "403 You are not authorized")
}
