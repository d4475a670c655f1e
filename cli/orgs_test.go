package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
)

func TestTarget(t *testing.T) {
	d := newDaemon(t)
	d.dew("target").must(t, 0, "dew.sock", "org:     local", "space:   dev")
	d.dew("orgs").must(t, 0, "local   1        yes") // the default
	d.dew("target", "-s", "dve").must(t, 1, `space "dve" does not exist in org local`, `did you mean "dev"?`)
	d.dew("target", "-o", "lokal").must(t, 1, `org "lokal" does not exist`, `did you mean "local"?`)
	d.dew("create-org", "shop").must(t, 0, "Created org shop")
	d.dew("create-org", "shop").must(t, 0, "already exists")
	d.dew("target", "-o", "shop").must(t, 0, "org:   shop", "No space is targeted")
	d.dew("apps").must(t, 1, "no space of org shop is targeted", "dew target -s SPACE")
	d.dew("create-space", "test").must(t, 0, "Created space test in org shop")
	d.dew("create-space", "test", "-o", "shop").must(t, 0, "already exists in org shop")
	d.dew("target", "-o", "shop").must(t, 0, "space:   test") // the only space
	d.dew("spaces").must(t, 0, "test   yes")
	d.dew("orgs").must(t, 0, "local   1        no", "shop    1        yes")
	d.dew("orgs", "--json").must(t, 0, `"name": "shop"`, `"spaces": 1`, `"targeted": true`)
	d.dew("spaces", "-o", "local", "--json").must(t, 0, `"name": "dev"`, `"org": "local"`)
	if p := storedConfig(t).Local[d.run]; p != (command.Target{OrgGUID: "org-shop", Org: "shop", SpaceGUID: "space-test", Space: "test"}) {
		t.Errorf("the target is %+v", p)
	}
	if len(d.accounts.roles) != 0 {
		t.Errorf("the administrator of the socket got roles: %v", d.accounts.roles)
	}
	// Another daemon has its own target.
	other := t.TempDir()
	runDew(t.Context(), "--run", other, "target").must(t, 0, other)
	d.accounts.spaces = d.accounts.spaces[:1]
	d.dew("apps").must(t, 1, "the targeted space test of org shop does not exist any more", "dew target -o ORG -s SPACE")
	d.dew("target", "-o", "local", "-s", "dev").must(t, 0)
	d.dew("apps").must(t, 0)
	d.accounts.orgs, d.accounts.spaces = nil, nil
	d.dew("delete-org", "local", "-f").must(t, 0, "Org local does not exist")
}

func TestNoTarget(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.accounts.spaces = nil
	d.dew("apps").must(t, 1, "no org and space are targeted", "dew target -o ORG -s SPACE")
	d.accounts.orgs = nil
	d.dew("apps").must(t, 1, "no org and space are targeted")
	d.dew("spaces").must(t, 1, "no org is targeted")
	d.dew("orgs").must(t, 0, "No orgs are visible to you")
	d.dew("target", "--json").must(t, 0, `"api": `)
}

func TestOrgsAndSpaces(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("org", "local").must(t, 0, "spaces:    dev", "domains:   dew.localhost, apps.internal, tcp.dew.localhost\n")
	d.dew("org", "local", "--guid").must(t, 0, "org-1\n")
	d.dew("org", "local", "--json").must(t, 0, `"spaces": [`)
	d.dew("space", "dev").must(t, 0, "apps:   shop", "org:    local")
	d.dew("space", "dev", "--guid").must(t, 0, "space-1\n")
	d.dew("space", "dev", "--json").must(t, 0, `"org": "local"`)
	d.dew("target", "-o", "local", "-s", "dev").must(t, 0)
	d.dew("rename-org", "local", "home").must(t, 0, "Renamed org local to home")
	d.dew("rename-space", "dev", "test").must(t, 0, "Renamed space dev to test")
	if got := d.body("PATCH /v3/organizations/org-1") + d.body("PATCH /v3/spaces/space-1"); got != `{"name":"home"}{"name":"test"}` {
		t.Errorf("bodies are %s", got)
	}
	if p := storedConfig(t).Local[d.run]; p.Org != "home" || p.Space != "test" {
		t.Errorf("the target is %+v", p)
	}
	d.dew("delete-space", "dev").must(t, 2, "confirmation needed: pass -f to delete space dev")
	d.dew("delete-space", "nothing", "-f").must(t, 0, "Space nothing does not exist")
	d.dew("delete-space", "dev", "-f").must(t, 0, "Deleted space dev")
	if p := storedConfig(t).Local[d.run]; p != (command.Target{}) {
		t.Errorf("the target is %+v", p)
	}
	d.dew("delete-org", "local").must(t, 2, "confirmation needed: pass -f to delete org local")
	d.dew("delete-org", "local", "-f").must(t, 0, "Deleted org local")
	if len(d.accounts.orgs)+len(d.accounts.spaces) != 0 {
		t.Error("they are still there")
	}
}

func TestUsersAndRoles(t *testing.T) {
	d := newRemoteDaemon(t)
	d.dew("create-user", "ada").must(t, 2, "--password-stdin")
	d.types("pw\npw\n", "create-user", "ada", "--email", "ada@example.com").must(t, 0, "Password for ada: ", "Password for ada, again: ", "dew set-space-role ada ORG SPACE")
	d.types("secret\n", "create-user", "ci", "--password-stdin").must(t, 0, "Created user ci")
	d.dew("create-user", "ada", "pw").must(t, 0, "User ada already exists")
	if d.accounts.emails["ada"] != "ada@example.com" || d.accounts.emails["ci"] != "ci" || d.accounts.secrets["ci"] != "secret" {
		t.Errorf("got %v, %v", d.accounts.emails, d.accounts.secrets)
	}
	d.dew("users").must(t, 0, "ada     uaa      user-ada", "admin   uaa")
	d.dew("users", "--json").must(t, 0, `"name": "ci"`)
	d.dew("set-space-role", "ada", "local", "dev", "SpaceDeveloper").must(t, 0, "Assigned role SpaceDeveloper in space dev of org local to ada")
	d.dew("set-space-role", "ada", "local", "dev", "space_developer").must(t, 0, "ada already has role SpaceDeveloper")
	d.dew("set-org-role", "ada", "local", "orgmanager").must(t, 0, "Assigned role OrgManager in org local to ada")
	d.dew("set-org-role", "ci", "local", "BillingManager", "--client").must(t, 0)
	d.dew("set-space-role", "ada", "local", "dev", "SpaceDevloper").must(t, 2, "one of SpaceManager, SpaceDeveloper, SpaceAuditor, SpaceSupporter; did you mean SpaceDeveloper?")
	d.dew("set-org-role", "ada", "local", "SpaceDeveloper").must(t, 2, "in an org: choose one of OrgManager, BillingManager, OrgAuditor")
	d.dew("set-org-role", "adda", "local", "OrgManager").must(t, 1, `did you mean "ada"?`)
	var kinds []string
	for _, r := range d.accounts.roles {
		kinds = append(kinds, r.Type+" "+r.Relationships.User.ID())
	}
	if got := strings.Join(kinds, ","); got != "organization_user user-ada,space_developer user-ada,organization_manager user-ada,organization_billing_manager ci" {
		t.Errorf("roles are %s", got)
	}
	d.dew("space-users", "local", "dev").must(t, 0, "ada    SpaceDeveloper")
	d.dew("org-users", "local").must(t, 0, "ada    Member, OrgManager", "ci     BillingManager")
	d.dew("org-users", "local", "--json").must(t, 0, `"roles": [`)
	d.dew("unset-space-role", "ada", "local", "dev", "SpaceDeveloper").must(t, 0, "Removed role SpaceDeveloper in space dev of org local from ada")
	d.dew("unset-space-role", "ada", "local", "dev", "SpaceDeveloper").must(t, 0, "ada does not have role SpaceDeveloper")
	d.dew("unset-org-role", "ci", "local", "BillingManager", "--client").must(t, 0)
	d.dew("space-users", "local", "dev").must(t, 0, "No users have a role")
	if len(d.accounts.roles) != 2 {
		t.Errorf("roles are %v", d.accounts.roles)
	}
	d.dew("delete-user", "ada", "-f").must(t, 0, "Deleted user ada")
	d.dew("delete-user", "ada", "-f").must(t, 0, "User ada does not exist")
	if d.count("DELETE /v3/users/user-ada") != 1 || d.count("DELETE /uaa/Users/user-ada") != 1 {
		t.Errorf("asked %v", d.requests)
	}
}

// The user who creates a space gets the roles to work in it.
func TestCreateSpaceRoles(t *testing.T) {
	d := newRemoteDaemon(t)
	d.remote("login", d.listen(), "-u", "admin", "-p", "it's").must(t, 0)
	d.remote("create-space", "test").must(t, 0, "Created space test in org local")
	var got []string
	for _, r := range d.accounts.roles {
		got = append(got, r.Type)
	}
	if strings.Join(got, " ") != "organization_user space_manager space_developer" {
		t.Errorf("roles are %v", got)
	}
	d.remote("target", "-s", "test").must(t, 0, "space:   test")
	d.remote("logout").must(t, 0)
	d.remote("target").must(t, 0, "space:   dev") // the target of the socket
}

func TestPick(t *testing.T) {
	d := newRemoteDaemon(t)
	url := d.listen()
	d.accounts.orgs = append(d.accounts.orgs, v3.Organization{GUID: "org-2", Name: "shop"})
	d.accounts.spaces = append(d.accounts.spaces, v3.Space{GUID: "space-2", Name: "test", Relationships: v3.SpaceRelationships{Organization: v3.To("org-1")}})
	d.types("it's\n1\ntest\n", "login", url, "-u", "admin").must(t, 0, "  1. local", "  2. shop", "  2. test", "space:   test")
	d.types("it's\n9\n", "login", url, "-u", "admin").must(t, 2, `"9" is not in the list`)
	d.remote("login", url, "-u", "admin", "-p", "it's", "-o", "local", "-s", "dev").must(t, 0, "space:   dev")
}

func TestClients(t *testing.T) {
	d := newRemoteDaemon(t)
	d.dew("create-client", "mailer").must(t, 2, "needs --authorities")
	d.types("s\n", "create-client", "mailer", "--authorities", "emails.write,notifications.write", "--secret-stdin").must(t, 0, "Created client mailer")
	d.types("s\n", "create-client", "typo", "--authorities", "notification.write,shop.read", "--secret-stdin").
		must(t, 0, "does not use the scope notification.write", "Did you mean notifications.write?", "does not use the scope shop.read")
	d.types("s\n", "create-client", "mailer", "--authorities", "a", "--secret-stdin").must(t, 1, "client mailer already exists", "dew clients")
	d.types("s\ns\n", "create-client", "ci", "--authorities", "cloud_controller.read").must(t, 0)
	if got := d.body("POST /uaa/oauth/clients"); !strings.Contains(got, `"authorized_grant_types":["client_credentials"]`) || !strings.Contains(got, `"client_secret":"s"`) {
		t.Errorf("the body is %s", got)
	}
	d.dew("clients").must(t, 0, "ci       client_credentials   cloud_controller.read", "mailer   client_credentials   emails.write, notifications.write")
	d.dew("clients", "--json").must(t, 0, `"authorities": [`)
	d.dew("delete-client", "ci").must(t, 2, "-f")
	d.dew("delete-client", "ci", "-f").must(t, 0, "Deleted client ci")
	d.dew("delete-client", "ci", "-f").must(t, 0, "Client ci does not exist")
}

func TestResources(t *testing.T) {
	d := newDaemon(t).withApp(v3.AppStarted)
	d.dew("domains").must(t, 0, "dew.localhost       shared         no         http", "apps.internal       shared         yes", "own.example.com     private")
	d.dew("domains", "--json").must(t, 0, `"internal": true`)
	d.dew("buildpacks").must(t, 0, "1          binary_buildpack   host    yes       no       READY")
	d.dew("buildpacks", "--json").must(t, 0, `"name": "binary_buildpack"`)
	d.builds = []v3.Build{{GUID: "b"}}
	r := d.dew("droplets", "shop")
	r.must(t, 0, "droplet-1   staged", "droplet-2   staged")
	if strings.Count(r.out, "host    yes") != 1 || strings.Count(r.out, "host    no") != 1 {
		t.Errorf("got %s", r.out)
	}
	d.dew("droplets", "shop", "--json").must(t, 0, `"current": true`)
	t.Chdir(t.TempDir())
	d.dew("create-app-manifest", "shop").must(t, 0, "Wrote shop_manifest.yml")
	if b, err := os.ReadFile("shop_manifest.yml"); err != nil || string(b) != "applications:\n- name: shop\n" {
		t.Errorf("got %s, %v", b, err)
	}
	d.dew("create-app-manifest", "shop", "-p", "-").must(t, 0, "- name: shop")
	d.dew("create-app-manifest", "shop", "-p", filepath.Join("no", "where")).must(t, 1, "cannot write the manifest")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	complete := func(args ...string) result { return d.dew(append(args, "--generate-bash-completion")...) }
	complete("org").must(t, 0, "local\n")
	complete("space").must(t, 0, "dev\n")
	complete("set-space-role").must(t, 0, "admin\n")
	complete("set-space-role", "admin").must(t, 0, "local\n")
	complete("set-space-role", "admin", "local").must(t, 0, "dev\n")
	complete("set-space-role", "admin", "local", "dev").must(t, 0, "SpaceSupporter\n")
	complete("set-org-role", "admin", "local").must(t, 0, "OrgAuditor\n")
	complete("target", "-o").must(t, 0, "local\n")
	complete("target", "-s").must(t, 0, "dev\n")
	complete("droplets").must(t, 0, "shop\n")
	d.dew("create-org-quota", "large").must(t, 0)
	d.dew("create-space-quota", "tiny").must(t, 0)
	d.dew("create-isolation-segment", "far").must(t, 0)
	d.dew("create-route", "dew.localhost", "-n", "shop").must(t, 0)
	complete("set-org-quota", "local").must(t, 0, "large\n")
	complete("set-space-quota", "dev").must(t, 0, "tiny\n")
	complete("enable-org-isolation", "local").must(t, 0, "far\n")
	complete("route").must(t, 0, "dew.localhost\n")
	complete("update-stack").must(t, 0, "host\n")
	complete("labels").must(t, 0, "service-plan\n")
	complete("labels", "route").must(t, 0, "shop.dew.localhost\n")
	complete("set-label", "buildpack").must(t, 0, "binary_buildpack\n")
	complete("labels", "buildpack", "x", "-s").must(t, 0, "host\n")
}
