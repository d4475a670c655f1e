package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// changed fails the test if the last body of a request differs.
func (d *fakeDaemon) changed(key, want string) {
	d.t.Helper()
	if got := d.body(key); got != want {
		d.t.Errorf("the body of %s is\n%s\nwant\n%s", key, got, want)
	}
}

func TestOrgQuotas(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("org-quotas").must(t, 0, "There are no org quotas. To create one: dew create-org-quota NAME")
	d.dew("create-org-quota", "small", "-m", "4G", "-i", "512M", "-r", "20", "-s", "-1", "-a", "8", "-l", "16K", "--reserved-route-ports", "3", "--allow-paid-service-plans").
		must(t, 0, "Created org quota small")
	d.changed("POST /v3/organization_quotas", `{"name":"small","apps":{"total_memory_in_mb":4096,"per_process_memory_in_mb":512,"log_rate_limit_in_bytes_per_second":16384,"total_instances":8},`+
		`"services":{"paid_services_allowed":true,"total_service_instances":null},"routes":{"total_routes":20,"total_reserved_ports":3}}`)
	d.dew("create-org-quota", "small").must(t, 0, "Org quota small already exists")
	d.changed("POST /v3/organization_quotas", `{"name":"small","apps":{"total_memory_in_mb":0,"per_process_memory_in_mb":null,"log_rate_limit_in_bytes_per_second":null,"total_instances":null},`+
		`"services":{"paid_services_allowed":false,"total_service_instances":0},"routes":{"total_routes":0,"total_reserved_ports":0}}`)
	d.dew("quotas").must(t, 0, "name    total memory   instance memory   routes   service instances   app instances   route ports   log volume per second   paid service plans",
		"small   4G             512M              20       unlimited           8               3             16.0K                   allowed")
	d.dew("org-quotas", "--json").must(t, 0, `"total_memory_in_mb": 4096`)
	d.dew("org-quota", "smal").must(t, 1, `org quota "smal" does not exist`, `did you mean "small"?`)
	d.dew("set-quota", "local", "small").must(t, 0, "Assigned quota small to org local")
	d.changed("POST /v3/organization_quotas/g-small/relationships/organizations", `{"data":[{"guid":"org-1"}]}`)
	d.dew("org-quota", "small").must(t, 0, "total memory:            4G", "orgs:                    local")
	d.dew("org-quota", "small", "--json").must(t, 0, `"guid": "g-small"`)
	d.dew("update-org-quota", "small", "-m", "-1", "-n", "large", "--disallow-paid-service-plans").must(t, 0, "Updated org quota large")
	d.changed("PATCH /v3/organization_quotas/g-small", `{"name":"large","apps":{"total_memory_in_mb":null},"services":{"paid_services_allowed":false}}`)
	d.dew("set-org-quota", "locl", "large").must(t, 1, `org "locl" does not exist`)
	d.dew("delete-org-quota", "large").must(t, 2, "-f")
	d.dew("delete-org-quota", "large", "-f").must(t, 0, "Deleted org quota large")
	d.dew("delete-org-quota", "large", "--force").must(t, 0, "Org quota large does not exist")
	if n := d.count("GET /v3/jobs/job-1"); n != 1 {
		t.Errorf("the job was asked for %d times, want 1", n)
	}
}

func TestSpaceQuotas(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("create-space-quota", "tiny", "-m", "1G").must(t, 0, "Created space quota tiny")
	if q := d.records.kept["/v3/space_quotas"][0]["relationships"]; console.CompactJSON(q) != `{"organization":{"data":{"guid":"org-1"}}}` {
		t.Errorf("relationships are %s", console.CompactJSON(q))
	}
	d.dew("set-space-quota", "dev", "tiny").must(t, 0, "Assigned quota tiny to space dev")
	d.dew("space-quota", "tiny").must(t, 0, "total memory:            1G", "spaces:                  dev")
	d.dew("unset-space-quota", "dev", "tiny").must(t, 0, "Removed quota tiny from space dev")
	d.dew("unset-space-quota", "dev", "tiny").must(t, 0, "Space dev does not have quota tiny")
	d.dew("update-space-quota", "tiny").must(t, 2, "update-space-quota needs at least one flag")
	d.dew("set-space-quota", "de", "tiny").must(t, 1, `space "de" does not exist in org local`)
	d.dew("space-quotas").must(t, 0, "tiny")
	d.dew("delete-space-quota", "tiny", "-f").must(t, 0, "Deleted space quota tiny")
}

func TestQuotaArguments(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-m", "4"}, `-m: "4" is not a valid amount`},
		{[]string{"-r", "many"}, `-r: "many" is not a valid number: use 0 or more, or -1 for no limit`},
		{[]string{"-s", "-2"}, `-s: "-2" is not a valid number`},
		{[]string{"--reserved-route-ports", "x"}, `--reserved-route-ports: "x"`},
		{[]string{"-l", "much"}, `-l: "much" is not a valid log rate limit`},
	} {
		d.dew(append([]string{"create-org-quota", "q"}, c.flags...)...).must(t, 2, c.want)
	}
	d.dew("update-org-quota", "q", "--allow-paid-service-plans", "--disallow-paid-service-plans").must(t, 2, "cannot be used together")
	d.dew("set-org-quota", "local").must(t, 2, "set-org-quota needs ORG ORG_QUOTA")
}

func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.accounts.spaces = append(d.accounts.spaces, v3.Space{GUID: "space-2", Name: "test", Relationships: v3.SpaceRelationships{Organization: v3.To("org-1")}})
	file := filepath.Join(t.TempDir(), "rules.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.dew("security-groups").must(t, 0, "No security groups found. To create one: dew create-security-group NAME FILE")
	write(`[{"protocol":"tcp","destination":"10.0.11.0/24","ports":"80,443"}]`)
	d.dew("create-security-group", "web", file).must(t, 0, "Created security group web")
	d.changed("POST /v3/security_groups", `{"name":"web","rules":[{"protocol":"tcp","destination":"10.0.11.0/24","ports":"80,443"}]}`)
	d.dew("create-security-group", "web", file).must(t, 0, "Security group web already exists")
	d.dew("security-group", "web").must(t, 0, "name:   web", `"ports": "80,443"`, "The security group is not bound to any space. To bind it: dew bind-security-group web ORG")
	d.dew("bind-security-group", "web", "local", "--space", "").must(t, 2, "--space is empty")
	d.dew("bind-security-group", "web", "local").must(t, 0, "Bound security group web to spaces dev, test of org local (running)")
	d.changed("POST /v3/security_groups/g-web/relationships/running_spaces", `{"data":[{"guid":"space-1"},{"guid":"space-2"}]}`)
	d.dew("bind-security-group", "web", "local", "--space", "dev", "--lifecycle", "staging").must(t, 0, "Bound security group web to space dev of org local (staging)")
	d.dew("security-groups").must(t, 0, "web    local   dev     running", "       local   dev     staging", "       local   test    running")
	d.dew("security-group", "web").must(t, 0, "org     space   lifecycle", "local   test    running")
	d.dew("security-groups", "--json").must(t, 0, `"lifecycle": "staging"`)
	d.dew("unbind-security-group", "web", "local", "test").must(t, 0, "Unbound security group web from space test of org local (running)")
	d.dew("unbind-security-group", "web", "local", "test").must(t, 0, "Security group web is not bound to space test of org local (running)")
	d.dew("bind-staging-security-group", "web").must(t, 0, "Updated security group web")
	d.changed("PATCH /v3/security_groups/g-web", `{"globally_enabled":{"staging":true}}`)
	d.dew("staging-security-groups").must(t, 0, "web    all     all     staging")
	d.dew("running-security-groups").must(t, 0, "No security groups found")
	d.dew("unbind-staging-security-group", "web").must(t, 0, "Updated security group web")
	d.dew("bind-running-security-group", "wbe").must(t, 1, `did you mean "web"?`)
	write(`[]`)
	d.dew("update-security-group", "web", file).must(t, 0, "Updated security group web")
	d.changed("PATCH /v3/security_groups/g-web", `{"rules":[]}`)
	d.dew("delete-security-group", "web", "-f").must(t, 0, "Deleted security group web")

	write(`[{"protocol":"tcp","port":"80"}]`)
	d.dew("create-security-group", "web", file).must(t, 2, `unknown field "port"`)
	d.dew("create-security-group", "web", file+".none").must(t, 2, "cannot read the rules in "+file+".none")
	d.dew("bind-security-group", "web", "local", "--lifecycle", "sleeping").must(t, 2, `--lifecycle must be running or staging, not "sleeping"`)
}

func TestIsolationSegments(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("isolation-segments").must(t, 0, "No isolation segments are visible to you")
	d.dew("create-isolation-segment", "far").must(t, 0, "Created isolation segment far")
	d.dew("create-isolation-segment", "far").must(t, 0, "Isolation segment far already exists")
	d.dew("enable-org-isolation", "local", "far").must(t, 0, "Org local can now use isolation segment far")
	d.dew("isolation-segments").must(t, 0, "far    local")
	d.dew("isolation-segments", "--json").must(t, 0, `"orgs": [`)
	d.dew("set-org-default-isolation-segment", "local", "far").must(t, 0, "Set the isolation segment of org local to far")
	d.changed("PATCH /v3/organizations/org-1/relationships/default_isolation_segment", `{"data":{"guid":"g-far"}}`)
	d.dew("reset-org-default-isolation-segment", "local").must(t, 0, "Reset the isolation segment of org local")
	d.changed("PATCH /v3/organizations/org-1/relationships/default_isolation_segment", `{"data":null}`)
	d.dew("set-space-isolation-segment", "dev", "far").must(t, 0, "Set the isolation segment of space dev to far")
	d.dew("reset-space-isolation-segment", "dev").must(t, 0, "Reset the isolation segment of space dev")
	d.changed("PATCH /v3/spaces/space-1/relationships/isolation_segment", `{"data":null}`)
	d.dew("set-space-isolation-segment", "dev", "fa").must(t, 1, `isolation segment "fa" does not exist`, `did you mean "far"?`)
	d.dew("disable-org-isolation", "local", "far").must(t, 0, "Org local can no longer use isolation segment far")
	d.dew("delete-isolation-segment", "far").must(t, 2, "-f")
	d.dew("delete-isolation-segment", "far", "-f").must(t, 0, "Deleted isolation segment far")
}

func TestVariableGroups(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("running-environment-variable-group").must(t, 0, "The running environment variable group is empty")
	d.dew("srevg", `{"A":"1","B":"2"}`).must(t, 0, "Set the running environment variable group")
	d.dew("set-running-environment-variable-group", `{"B":"3"}`).must(t, 0)
	d.changed("PATCH /v3/environment_variable_groups/running", `{"var":{"A":null,"B":"3"}}`)
	d.dew("revg").must(t, 0, "B          3")
	d.dew("revg", "--json").must(t, 0, `"B": "3"`)
	d.dew("sevg", "--json").must(t, 0, "{}")
	d.dew("ssevg", `{"A":1}`).must(t, 2, "the values in VARIABLES must be strings")
	d.dew("ssevg", `[]`).must(t, 2, "VARIABLES must be a JSON object")
}

func TestSpaceSSH(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("space-ssh-allowed", "dev").must(t, 0, "SSH access is allowed in space dev of org local")
	d.dew("disallow-space-ssh", "dev").must(t, 0, "SSH access is not allowed in space dev of org local")
	d.dew("space-ssh-allowed", "dev").must(t, 0, "SSH access is not allowed")
	d.dew("space-ssh-allowed", "dev", "--json").must(t, 0, `"allowed": false`)
	d.dew("allow-space-ssh", "dev").must(t, 0, "SSH access is allowed")
	d.dew("allow-space-ssh", "dve").must(t, 1, `did you mean "dev"?`)
}

func TestUsageEvents(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("usage-events", "--json").must(t, 0, `"guid": "u-3"`, `"guid": "u-2"`, `"guid": "u-1"`)
	r := d.dew("usage-events", "-n", "2")
	r.must(t, 0, "app       stopped   shop   web", "service   created   db     postgres small")
	if n := len(d.records.appUsage); n != 2 {
		t.Fatal(n)
	}
	d.dew("usage-events", "--apps").must(t, 0, "started   shop   web               dev     2 x 256M")
	d.dew("usage-events", "--services", "--since", "2026-01-31T08:00:00Z").must(t, 0, "db")
	if d.records.usageFrom != "2026-01-31T08:00:00Z" {
		t.Errorf("asked from %q on", d.records.usageFrom)
	}
	d.dew("usage-events", "--since", "never").must(t, 2, "--since")
	d.dew("usage-events", "-n", "0").must(t, 2, "-n must be at least 1, not 0")
}

func TestUpdateStack(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.dew("update-stack", "host", "--state", "Deprecated", "--reason", "old").must(t, 0, "Stack host is deprecated")
	d.changed("PATCH /v3/stacks/s-host", `{"state":"DEPRECATED","state_reason":"old"}`)
	d.dew("update-stack", "host", "--reason", "").must(t, 0)
	d.changed("PATCH /v3/stacks/s-host", `{"state_reason":""}`)
	d.dew("update-stack", "host").must(t, 2, "needs --state or --reason")
	d.dew("update-stack", "host", "--state", "gone").must(t, 2, `--state must be one of active, restricted, deprecated, disabled, not "gone"`)
	d.dew("update-stack", "hots", "--state", "active").must(t, 1, `stack "hots" does not exist`)
	d.dew("stack", "host", "--guid").must(t, 0, "s-host\n")
}
