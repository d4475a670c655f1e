//go:build integration

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	evaPassword = "not-a-real-p4ssword-either"
	newPassword = "not-a-real-p4ssword-any-more"
)

// The cf CLI manages users, their roles, orgs and spaces: every way to log in, every
// role, passwords, and renamed orgs and spaces.
func TestCFPeople(t *testing.T) {
	s := newStockClient(t, "people")
	s.hide(doraPassword, "$password-dora")
	s.hide(evaPassword, "$password-eva")
	s.hide(newPassword, "$password-new")
	s.hide(clientSecret, "$password-client")
	s.parts(
		part{"places", s.renamesPlaces},
		part{"users", s.makesUsers},
		part{"org roles", s.givesOrgRoles},
		part{"space roles", s.givesSpaceRoles},
		part{"ssh", s.allowsSSH},
		part{"passwords", s.changesPasswords},
		part{"logins", s.logsInEveryWay},
		part{"tokens", s.showsTokens},
		part{"end", s.sendsPeopleAway},
	)
	s.finish()
}

func (s *stock) renamesPlaces() {
	s.cf("create-org works", "OK")
	s.cf("create-space yard -o works", "OK")
	s.cf("create-space hall -o works", "OK")
	s.refuses("create-space yard -o nowhere", "Organization 'nowhere' not found.")
	s.cf("target -o works -s yard", "org: works", "space: yard")
	s.cf("rename-org works firm", "OK")
	s.refuses("rename-org firm local", "Organization 'local' already exists.")
	s.refuses("rename-org nowhere else", "Organization 'nowhere' not found.")
	s.cf("target -o firm -s yard", "org: firm")
	s.cf("rename-space yard court", "OK")
	s.refuses("rename-space court hall", "name must be unique per organization")
	s.refuses("rename-space nowhere else", "Space 'nowhere' not found.")
	s.cf("target -s court", "space: court")
	s.refuses("target -o nowhere", "Organization 'nowhere' not found.")
	s.refuses("target -o firm -s nowhere", "Space 'nowhere' not found.")
	s.refuses("spaces", "No org targeted, use 'cf target -o ORG' to target an org.")
	s.cf("target -o firm -s court", "space: court")
	s.cf("spaces", "court", "hall")
	s.refuses("org nowhere", "Organization 'nowhere' not found.")
	s.cf("delete-org nowhere -f", "Org 'nowhere' does not exist.", "OK")
	s.cf("delete-space nowhere -f", "Space 'nowhere' does not exist.", "OK")
}

func (s *stock) makesUsers() {
	s.cf("create-user dora $password-dora", "OK")
	s.types("$password-eva $password-eva", "create-user eva --password-prompt", "OK")
	s.cf("create-user mole --origin ldap", "OK")
	s.cf("create-user mole --origin ldap", "already exists", "OK")
	s.cf(`curl /uaa/oauth/clients -X POST -d '{"client_id":"robot","client_secret":"$password-client","authorized_grant_types":["client_credentials"]}'`,
		`^.*"client_id": ?"robot".*$`)
}

func (s *stock) givesOrgRoles() {
	for _, role := range []string{"OrgManager", "BillingManager", "OrgAuditor"} {
		s.cf("set-org-role dora firm "+role, "OK")
		s.cf("set-org-role dora firm "+role, "OK")
	}
	s.cf("set-org-role mole firm OrgAuditor --origin ldap", "OK")
	s.cf("set-org-role robot firm OrgManager --client", "OK")
	s.refuses("set-org-role nobody firm OrgManager", "No user exists with the username 'nobody'.")
	s.refuses("set-org-role dora nowhere OrgManager", "Organization 'nowhere' not found.")
	s.cf("org-users firm", "^ORG MANAGER$", "^ +dora \\(uaa\\)$", "^ +robot \\(client\\)$", "^BILLING MANAGER$", "^ORG AUDITOR$", "^ +mole \\(ldap\\)$")
	s.cf("org-users firm -a", "^ORG USERS$", "^ +admin \\(uaa\\)$")
	for _, role := range []string{"BillingManager", "OrgAuditor"} {
		s.cf("unset-org-role dora firm "+role, "OK")
	}
	s.cf("unset-org-role dora firm OrgAuditor", "OK")
	s.cf("unset-org-role mole firm OrgAuditor --origin ldap", "OK")
	s.cf("unset-org-role robot firm OrgManager --client", "OK")
	s.refuses("unset-org-role nobody firm OrgManager", "User 'nobody' does not exist.")
	s.cf("org-users firm", "^(?s:.*ORG AUDITOR\\s+No ORG AUDITOR found)")
}

func (s *stock) givesSpaceRoles() {
	for _, role := range []string{"SpaceManager", "SpaceDeveloper", "SpaceAuditor", "SpaceSupporter"} {
		s.cf("set-space-role eva firm court "+role, "OK")
		s.cf("set-space-role eva firm court "+role, "OK")
	}
	s.cf("set-space-role mole firm court SpaceAuditor --origin ldap", "OK")
	s.cf("set-space-role robot firm court SpaceDeveloper --client", "OK")
	s.refuses("set-space-role nobody firm court SpaceAuditor", "No user exists with the username 'nobody'.")
	s.refuses("set-space-role eva firm nowhere SpaceAuditor", "Space 'nowhere' not found.")
	s.cf("space-users firm court", "^SPACE MANAGER$", "^SPACE DEVELOPER$", "^SPACE AUDITOR$", "^SPACE SUPPORTER$", "^ +eva \\(uaa\\)$", "^ +mole \\(ldap\\)$", "^ +robot \\(client\\)$")
	for _, role := range []string{"SpaceAuditor", "SpaceSupporter", "SpaceManager"} {
		s.cf("unset-space-role eva firm court "+role, "OK")
	}
	s.cf("unset-space-role mole firm court SpaceAuditor --origin ldap", "OK")
	s.cf("unset-space-role robot firm court SpaceDeveloper --client", "OK")
	s.refuses("unset-space-role nobody firm court SpaceAuditor", "User 'nobody' does not exist.")
	s.refuses("space-users firm nowhere", "Space 'nowhere' not found.")
}

func (s *stock) allowsSSH() {
	s.cf("space-ssh-allowed court", "ssh support is enabled in space 'court'.")
	s.cf("disallow-space-ssh court", "OK")
	s.cf("disallow-space-ssh court", "ssh support for space 'court' is already disabled.", "OK")
	s.cf("space-ssh-allowed court", "ssh support is disabled in space 'court'.")
	s.cf("allow-space-ssh court", "OK")
	s.cf("allow-space-ssh court", "ssh support for space 'court' is already enabled.", "OK")
	s.refuses("allow-space-ssh nowhere", "Space 'nowhere' not found.")
	s.cf("create-app locked", "OK")
	s.cf("ssh-enabled locked", "ssh support is enabled for app 'locked'.")
	s.cf("disable-ssh locked", "OK")
	s.cf("disable-ssh locked", "ssh support for app 'locked' is already disabled.", "OK")
	s.cf("ssh-enabled locked", "ssh support is disabled for app 'locked'.")
	s.cf("enable-ssh locked", "OK")
	s.cf("enable-ssh locked", "ssh support for app 'locked' is already enabled.", "OK")
	s.refuses("ssh-enabled none", "App 'none' not found.")
}

func (s *stock) changesPasswords() {
	s.cf("logout", "OK")
	s.cf("login -u eva -p $password-eva -o firm -s court", "user: eva")
	s.types("$password-eva $password-new $password-new", "passwd", "Changing password for user eva...", "OK", "Please log in again.")
	s.refuses("auth eva $password-eva", badCredentials)
	s.cf("auth eva $password-new", "OK")
	s.input = s.words("wrong $password-eva $password-eva")
	s.refuses("passwd", badCredentials)
	s.input = nil
}

// logsInEveryWay logs in as eva, who sees one space, and as dora, who manages an org.
func (s *stock) logsInEveryWay() {
	s.cf("login -u eva -p $password-new", "Targeted org firm.", "Targeted space court.")
	s.cf("login -u eva -p $password-new -o firm", "Targeted space court.")
	s.cf("login -a $url -u eva -p $password-new -s court", "org: firm", "space: court")
	s.refuses("login -u eva -p $password-new -o nowhere", "Organization 'nowhere' not found.")
	s.refuses("login -u eva -p $password-new -o firm -s nowhere", "Space 'nowhere' not found.")
	s.types("eva $password-new", "login -o firm -s court", "user: eva", "space: court")
	s.cf("auth eva $password-new --origin uaa", "OK")
	s.types("2", "login -u dora -p $password-dora", "^1\\. court", "^2\\. hall", "Targeted space hall.")
	s.cf("login -u dora -p $password-dora -o firm -s hall --origin uaa", "space: hall")
	s.refuses("auth robot $password-client --client-credentials --origin uaa", "Incorrect Usage: The following arguments cannot be used together: --client-credentials, --origin")
	s.cf("logout", "OK")
	s.cf("auth robot $password-client --client-credentials", "OK")
	s.refuses("auth eva $password-new", "Service account currently logged in. Use 'cf logout' to log out service account and try again.")
	s.cf("logout", "OK")
	s.live(1, "auth robot $password-client --assertion aaaa.bbbb.cccc", "Unsupported grant type: urn:ietf:params:oauth:grant-type:jwt-bearer", "FAILED")
}

func (s *stock) showsTokens() {
	s.cf("login -u admin -p $password-admin -o firm -s court", "space: court")
	if token := s.cf("oauth-token", "^bearer "); strings.Count(token, ".") < 2 {
		s.t.Errorf("the token has no three parts")
	}
	s.live(0, "ssh-code", `^\S{6,}$`)
	s.usesPasscode()
	s.cf("login -u admin -p $password-admin -o firm -s court", "space: court")
}

// usesPasscode logs in with a one-time passcode, so it is not recorded.
func (s *stock) usesPasscode() {
	var given struct {
		Passcode string `json:"passcode"`
	}
	if err := json.Unmarshal([]byte(s.live(0, "curl /uaa/passcode")), &given); err != nil || given.Passcode == "" {
		s.t.Fatalf("no passcode: %v", err)
	}
	s.live(0, "login --sso-passcode "+given.Passcode+" -o firm -s court", "user: admin", "space: court")
	s.live(0, "orgs", "firm")
	s.live(1, "login --sso-passcode "+given.Passcode+" -o firm -s court", badCredentials)
}

func (s *stock) sendsPeopleAway() {
	for _, name := range []string{"dora", "eva", "mole --origin ldap"} {
		s.cf("delete-user "+name+" -f", "OK")
	}
	s.cf("delete-user dora -f", "User 'dora' does not exist.", "OK")
	s.cf("delete-org firm -f", "OK")
	s.cf("logout", "OK")
}
