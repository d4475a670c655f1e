//go:build integration

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// step is a command of dew, its exit code, and its output.
type step struct {
	status int
	args   string // separated by spaces; ~ stands for a space inside a word
	says   []string
}

// The commands of dew work with a real daemon. One group after the other creates a
// resource, shows it, is refused, and deletes it.
func TestCommands(t *testing.T) {
	runParallel(t)
	c := newCell(t)
	c.start()
	for _, family := range []struct {
		name  string
		steps []step
	}{
		{"apps", appSteps},
		{"org quotas", orgQuotaSteps},
		{"space quotas", spaceQuotaSteps},
		{"security groups", groupSteps},
		{"isolation segments", segmentSteps},
		{"variables", variableSteps},
		{"labels", labelSteps},
		{"ssh of a space", sshSteps},
		{"routes", routeSteps},
		{"domains", domainSteps},
		{"stacks", stackSteps},
		{"usage", usageSteps},
		{"placement", placementSteps},
	} {
		t.Run(family.name, func(t *testing.T) {
			for _, s := range family.steps {
				c.runSteps(t, s)
			}
		})
	}
	t.Run("dashboards", c.opensDashboards)
	t.Run("placement check off", func(t *testing.T) {
		c.kill(syscall.SIGTERM)
		c.flags = append(c.flags, "--placement-check", "off")
		c.start()
		c.eventually("the instance starts", func() error {
			out, err := c.outcome("app", "huge", "--json")
			if err == nil && !strings.Contains(out, `"RUNNING"`) {
				err = errors.New(out)
			}
			return err
		})
	})
}

// runSteps runs a step. In its arguments, RULES is a file of rules, and APP a folder
// with an app.
func (c *cell) runSteps(t *testing.T, s step) {
	t.Helper()
	dir := filepath.Dir(c.root)
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "files"), 0o755),
		os.WriteFile(filepath.Join(dir, "files", "Procfile"), []byte("web: echo proxy=$PROXY; sleep 1000\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "rules.json"), []byte(`[{"protocol":"tcp","destination":"10.0.0.0/8","ports":"443"}]`), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(s.args)
	for i, arg := range args {
		args[i] = strings.NewReplacer("RULES", filepath.Join(dir, "rules.json"), "APP", filepath.Join(dir, "files"), "~", " ").Replace(arg)
	}
	cmd := c.dewCommand(args...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != s.status {
		t.Fatalf("dew %s: status %d, want %d\n%s", s.args, got, s.status, out)
	}
	for _, want := range s.says {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("dew %s: %s is missing in\n%s", s.args, want, out)
		}
	}
}

var appSteps = []step{
	{0, "push shop -p APP -b binary_buildpack -u process -m 64M", nil},
}

var orgQuotaSteps = []step{
	{0, "create-org-quota small -m 64G -r -1 -s -1 -l 16K", []string{"Created org quota small"}},
	{0, "create-org-quota small", []string{"already exists"}},
	{0, "org-quotas", []string{`(?m)^small +64G +unlimited +unlimited `, `(?m)^unlimited `}},
	{0, "create-org shop -q small", []string{"Assigned quota small to org shop"}},
	{0, "org shop", []string{`quota: +small`}},
	{0, "org-quota small", []string{`total memory: +64G`, `log volume per second: +16.0K`, `orgs: +shop`}},
	{0, "update-org-quota small -n large -a 5 --allow-paid-service-plans", []string{"Updated org quota large"}},
	{0, "quotas --json", []string{`"total_instances": 5`, `"paid_services_allowed": true`}},
	{1, "set-org-quota shop lrage", []string{`did you mean "large"\?`}},
	{0, "set-quota local large", []string{"Assigned quota large to org local"}},
	{1, "delete-org-quota unlimited -f", []string{"built in"}},
	{0, "delete-org-quota large -f", []string{"Deleted org quota large"}},
	{0, "delete-org-quota large -f", []string{"Org quota large does not exist"}},
	{0, "org local", []string{`quota: +unlimited`}},
	{0, "delete-org shop -f", nil},
}

var spaceQuotaSteps = []step{
	{0, "create-space-quota tiny -m 64G -r 5", []string{"Created space quota tiny"}},
	{0, "create-space test -q tiny", []string{"Assigned quota tiny to space test"}},
	{0, "space test", []string{`quota: +tiny`}},
	{0, "space-quota tiny", []string{`routes: +5`, `spaces: +test`}},
	{0, "unset-space-quota test tiny", []string{"Removed quota tiny from space test"}},
	{0, "unset-space-quota test tiny", []string{"does not have quota tiny"}},
	{0, "delete-space-quota tiny -f", []string{"Deleted space quota tiny"}},
	{0, "space-quotas", []string{"There are no space quotas"}},
}

var groupSteps = []step{
	{0, "create-security-group web RULES", []string{"Created security group web"}},
	{2, "create-security-group web RULES.none", []string{"cannot read the rules"}},
	{0, "bind-security-group web local", []string{"Bound security group web to spaces dev, test of org local"}},
	{0, "bind-security-group web local --space dev --lifecycle staging", nil},
	{0, "security-groups", []string{`(?m)^web +local +dev +running$`, `(?m)^ +local +dev +staging$`, `(?m)^ +local +test +running$`}},
	{0, "security-group web", []string{`"destination": "10.0.0.0/8"`, `(?m)^local +test +running$`}},
	{0, "unbind-security-group web local test", []string{"Unbound security group web from space test"}},
	{0, "bind-running-security-group web", nil},
	{0, "running-security-groups", []string{`(?m)^web +all +all +running$`}},
	{0, "staging-security-groups", []string{`(?m)^default +all +all +running$`}},
	{0, "unbind-running-security-group web", nil},
	{0, "space dev --security-group-rules", []string{`(?m)^web +tcp +10.0.0.0/8 +443 +staging$`}},
	{0, "update-security-group web RULES", []string{"Updated security group web"}},
	{0, "delete-security-group web -f", []string{"Deleted security group web"}},
}

var segmentSteps = []step{
	{0, "create-isolation-segment far", []string{"Created isolation segment far"}},
	{0, "create-isolation-segment far", []string{"already exists"}},
	{1, "set-space-isolation-segment dev far", []string{"is not allowed to use isolation segment far", "dew enable-org-isolation"}},
	{0, "enable-org-isolation local far", nil},
	{0, "isolation-segments", []string{`(?m)^far +local$`}},
	{0, "set-space-isolation-segment dev far", nil},
	{0, "space dev", []string{`isolation segment: +far`}},
	{0, "reset-space-isolation-segment dev", nil},
	{0, "set-org-default-isolation-segment local far", nil},
	{0, "org local", []string{`isolation segment: +far`}},
	{0, "reset-org-default-isolation-segment local", nil},
	{1, "delete-isolation-segment far -f", []string{"cannot delete isolation segment far"}},
	{0, "disable-org-isolation local far", nil},
	{0, "delete-isolation-segment far -f", []string{"Deleted isolation segment far"}},
}

var variableSteps = []step{
	{0, `set-running-environment-variable-group {"PROXY":"everywhere","A":"b"}`, nil},
	{0, `srevg {"PROXY":"everywhere"}`, nil},
	{0, "revg --json", []string{`^\{\n +"PROXY": "everywhere"\n\}`}},
	{0, "restart shop", nil},
	{0, "ssh shop -c echo~$PROXY", []string{"everywhere"}},
	{0, `ssevg {"MIRROR":"here"}`, nil},
	{0, "staging-environment-variable-group", []string{`(?m)^MIRROR +here$`}},
	{2, "ssevg nonsense", []string{"VARIABLES must be a JSON object"}},
	{0, "ssevg {}", nil},
	{0, "sevg", []string{"The staging environment variable group is empty"}},
}

var labelSteps = []step{
	{0, "set-label app shop env=test team=a", []string{"Changed the labels of app shop"}},
	{0, "labels app shop", []string{`(?m)^env +test$`, `(?m)^team +a$`}},
	{0, "apps --labels env=test", []string{`(?m)^shop `}},
	{0, "apps --labels !env --json", []string{`^\[\]`}},
	{0, "unset-label app shop team", nil},
	{0, "labels app shop --json", []string{`^\{\n +"env": "test"\n\}`}},
	{0, "set-label org local a=b", nil},
	{0, "orgs --labels a", []string{"local"}},
	{0, "labels org local", []string{`(?m)^a +b$`}},
	{0, "set-label space dev a=b", nil},
	{0, "spaces --labels a", []string{"dev"}},
	{0, "labels space dev", []string{`(?m)^a +b$`}},
	{0, "set-label domain dew.localhost a=b", nil},
	{0, "domains --labels a", []string{"dew.localhost"}},
	{0, "set-label route shop.dew.localhost a=b", nil},
	{0, "routes --labels a", []string{"shop.dew.localhost"}},
	{0, "set-label stack host a=b", nil},
	{0, "stacks --labels a", []string{"host"}},
	{0, "set-label buildpack go_buildpack a=b", nil},
	{0, "labels buildpack go_buildpack", []string{`(?m)^a +b$`}},
	{0, "set-label user admin a=b", nil},
	{0, "labels user admin", []string{`(?m)^a +b$`}},
	{0, "set-label service-broker dew a=b", nil},
	{0, "labels service-broker dew", []string{`(?m)^a +b$`}},
	{0, "set-label service-offering redis a=b", nil},
	{0, "labels service-offering redis", []string{`(?m)^a +b$`}},
	{0, "set-label service-plan small -e redis a=b", nil},
	{0, "labels service-plan small -e redis", []string{`(?m)^a +b$`}},
	{2, "labels service-plan small", []string{"choose one with --offering"}},
	{1, "set-label app shop -- -a=b", []string{"a key must have"}},
	{1, "labels app shpo", []string{`did you mean "shop"\?`}},
}

var sshSteps = []step{
	{0, "space-ssh-allowed dev", []string{"SSH access is allowed in space dev of org local"}},
	{0, "disallow-space-ssh dev", nil},
	{0, "ssh-enabled shop", []string{"ssh is disabled for app shop: .*space"}},
	{1, "ssh shop -c true", nil},
	{0, "allow-space-ssh dev", nil},
	{0, "ssh shop -c true", nil},
}

var routeSteps = []step{
	{0, "route dew.localhost -n shop", []string{`space: +dev`, `(?m)^shop +web +8080 +http1$`}},
	{0, "check-route dew.localhost -n shop", []string{"exists"}},
	{0, "check-route dew.localhost -n none --path api", []string{"does not exist"}},
	{0, "update-route dew.localhost -n shop -o loadbalancing=round-robin", nil},
	{0, "route dew.localhost -n shop", []string{`option: +loadbalancing=round-robin`}},
	{1, "update-route dew.localhost -n shop -o colour=red", []string{`Unknown field\(s\): 'colour'`}},
	{0, "update-route dew.localhost -n shop -r loadbalancing", nil},
	{0, "update-destination shop dew.localhost -n shop --app-protocol http2", nil},
	{0, "route dew.localhost -n shop --json", []string{`"protocol": "http2"`}},
	{1, "share-route dew.localhost -n shop -s test", []string{"Feature Disabled: route_sharing"}},
	{0, "enable-feature-flag route_sharing", nil},
	{0, "share-route dew.localhost -n shop -s test", nil},
	{0, "route dew.localhost -n shop", []string{`shared with: +test`}},
	{0, "unshare-route dew.localhost -n shop -s test", nil},
	{0, "unshare-route dew.localhost -n shop -s test", []string{"is not shared with"}},
	{0, "create-route dew.localhost -n spare", nil},
	{0, "move-route dew.localhost -n spare -s test", nil},
	{0, "routes --org-level", []string{"spare.dew.localhost"}},
	{0, "route dew.localhost -n spare", []string{`space: +test`, "The route has no destinations"}},
}

var domainSteps = []step{
	{0, "create-org far", nil},
	{0, "create-private-domain local own.example.com", []string{"Created domain own.example.com of org local"}},
	{1, "create-private-domain far own.example.com", []string{"cannot create domain own.example.com"}},
	{0, "domains", []string{`(?m)^own.example.com +private `}},
	{0, "share-private-domain far own.example.com", nil},
	{0, "org far", []string{"own.example.com"}},
	{0, "unshare-private-domain far own.example.com", nil},
	{0, "unshare-private-domain far own.example.com", []string{"is not shared"}},
	{1, "delete-private-domain dew.localhost -f", []string{"shared by all orgs"}},
	{0, "delete-private-domain own.example.com -f", []string{"Deleted domain own.example.com"}},
	{0, "delete-org far -f", nil},
}

var stackSteps = []step{
	{0, "update-stack host --state deprecated --reason old", []string{"Stack host is deprecated"}},
	{0, "stacks", []string{`(?m)^host +host +ready +deprecated .*\(old\)$`}},
	{0, "restage shop", []string{"stack 'host' is deprecated: old"}},
	{2, "update-stack host --state gone", []string{"must be one of active"}},
	{0, "update-stack host --state active --reason ~", nil},
}

var usageSteps = []step{
	{0, "usage-events --apps", []string{`(?m)app +started +shop +web +dev +1 x `}},
	{0, "usage-events --since 1h -n 1 --json", []string{`"kind": "app"`}},
	{2, "usage-events --since never", []string{"is not a time"}},
	{0, "curl /v3/app_usage_events?order_by=-created_at&per_page=50", []string{`"buildpack":\s*\{\s*"guid":\s*"[0-9a-f-]{36}",\s*"name":\s*"binary_buildpack"`}},
}

// A memory limit above the memory of the machine is DOWN, and other apps run.
var placementSteps = []step{
	{0, "push huge -p APP -b binary_buildpack -u process -m 1000T --no-start --no-route", nil},
	{9, "start huge", []string{"insufficient resources: memory \\(the instance can use up to 1048576000M, but this machine has [0-9]+M\\)"}},
	{0, "app huge", []string{`#0 +down`, "insufficient resources: memory"}},
	{0, "curl /v3/apps?names=huge", []string{`"state":\s*"STARTED"`}},
	{0, "ssh shop -c true", nil},
}
