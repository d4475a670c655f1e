//go:build integration

package main

import (
	"testing"
)

// The cf CLI manages quotas, security groups, environment variable groups, isolation
// segments, feature flags, labels, stacks and buildpacks. Variables reach the
// instances; dew only stores the others, and does not enforce them.
func TestCFRecords(t *testing.T) {
	s := newStockClient(t, "records")
	s.write("app/Procfile", []byte("web: echo proxy=$PROXY own=$OWN; sleep 1000\n"))
	s.parts(
		part{"variables", s.keepsVariables},
		part{"org quotas", s.keepsOrgQuotas},
		part{"space quotas", s.keepsSpaceQuotas},
		part{"security groups", s.keepsGroups},
		part{"segments", s.keepsSegments},
		part{"flags", s.keepsFlags},
		part{"stacks", s.keepsStacks},
		part{"buildpacks", s.keepsBuildpacks},
		part{"labels", s.keepsLabels},
	)
	s.finish()
}

func (s *stock) keepsVariables() {
	s.cf(`set-running-environment-variable-group '{"PROXY":"everywhere","OWN":"group"}'`, "OK")
	s.cf("running-environment-variable-group", "^PROXY +everywhere$")
	s.cf(`set-staging-environment-variable-group '{"MIRROR":"here"}'`, "OK")
	s.cf("staging-environment-variable-group", "^MIRROR +here$")
	s.refuses("set-running-environment-variable-group {PROXY", "Invalid environment variable group provided. Please provide a valid JSON object.")
	s.cf("push shop --no-manifest -p app -b binary_buildpack -u process -m 64M --no-route", oneRunning)
	s.cf("set-env shop OWN app", "OK")
	s.cf("restart shop", oneRunning)
	s.eventuallySays("proxy=everywhere own=app", "logs shop --recent")
	s.cf("env shop", "^(?s:.*Running Environment Variable Groups:.*PROXY: everywhere)", "^(?s:.*Staging Environment Variable Groups:.*MIRROR: here)")
}

func (s *stock) keepsOrgQuotas() {
	s.cf("create-org-quota small -m 200M -i 100M -a 2 -r 5 -s 0 -l 1M --reserved-route-ports 2", "OK")
	s.cf("create-org-quota small", "Organization Quota 'small' already exists.", "OK")
	s.cf("org-quotas", "^small +200M +100M +5 +0 ", "^unlimited ")
	s.cf("org-quota small", "total memory: 200M", "app instances: 2", "route ports: 2", "^log volume per second: +1M")
	s.refuses("org-quota none", "Organization quota with name 'none' not found.")
	s.cf("set-org-quota local small", "OK")
	s.refuses("set-org-quota local none", "Organization quota with name 'none' not found.")
	s.refuses("set-org-quota nowhere small", "Organization 'nowhere' not found.")
	s.cf("org local", "^quota: +small")
	s.refuses("scale shop -i 3", "log_rate_limit cannot be unlimited in organization 'local'.", "Organization quota 'small' allows 1048576 bytes of log per second")
	s.cf("update-org-quota small -l -1", "OK")
	s.refuses("scale shop -i 3", "app_instance_limit app_instance_limit_exceeded", "Organization quota 'small' allows 2 instances. In use: 1. This change needs 2 more.")
	s.refuses("scale shop -f -m 150M", "memory instance_memory_limit_exceeded", "allows 100M of memory for one instance, and process web of app shop asks for 150M.")
	s.cf("scale shop -i 2", "^instances: +[1-2]/2$")
	s.cf("scale shop -i 1", oneRunning)
	s.cf("update-org-quota small -n larger -m 1G -i -1 -r -1 -s -1 -a -1 -l -1 --reserved-route-ports -1 --allow-paid-service-plans", "OK")
	s.cf("org-quota larger", "total memory: 1G", "app instances: unlimited", "paid service plans: allowed")
	s.cf("update-org-quota larger --disallow-paid-service-plans", "OK")
	s.refuses("update-org-quota none -m 1G", "Organization quota with name 'none' not found.")
	s.cf("create-org bounded -q larger", "OK")
	s.cf("org bounded", "quota: larger")
	s.refuses("create-org unbounded -q none", "Organization quota with name 'none' not found.")
	s.cf("delete-org bounded -f", "OK")
	s.cf("delete-org-quota larger -f", "OK")
	s.cf("delete-org-quota larger -f", "Organization quota with name 'larger' not found.", "OK")
	s.cf("org local", "^quota: +unlimited")
}

func (s *stock) keepsSpaceQuotas() {
	s.cf("create-space-quota tight -m 128M -i 64M -r 2 -s 1 -a 2 -l 1M --reserved-route-ports 1 --allow-paid-service-plans", "OK")
	s.cf("create-space-quota tight", "^.*tight.* already exists", "OK")
	s.cf("space-quotas", "^tight +128M")
	s.cf("set-space-quota dev tight", "OK")
	s.refuses("set-space-quota dev none", "Space quota with name 'none' not found.")
	s.refuses("set-space-quota nowhere tight", "Space 'nowhere' not found.")
	s.cf("space dev", "^quota: +tight")
	s.refuses("scale shop -m 96M -f", "memory space_instance_memory_limit_exceeded", "Space quota 'tight' allows 64M of memory for one instance")
	s.cf("unset-space-quota dev tight", "OK")
	s.cf("scale shop -m 96M -f", "^memory usage: +96M$", oneRunning)
	s.cf("update-space-quota tight -n loose -m 256M -i -1 -r -1 -s -1 -a -1 -l -1 --reserved-route-ports -1 --disallow-paid-service-plans", "OK")
	s.cf("space-quota loose", "total memory: 256M", "app instances: unlimited", "paid service plans: disallowed")
	s.refuses("space-quota none", "Space quota with name 'none' not found.")
	s.cf("create-space narrow -q loose", "OK")
	s.cf("space narrow", "quota: loose")
	s.cf("delete-space narrow -f", "OK")
	s.cf("delete-space-quota loose -f", "OK")
	s.cf("delete-space-quota loose -f", "Space quota with name 'loose' not found.", "OK")
	s.cf("space-quotas", "No space quotas found.")
}

func (s *stock) keepsGroups() {
	s.write("rules.json", []byte(`[{"protocol":"tcp","destination":"10.0.0.0/8","ports":"443"}]`))
	s.write("broken.json", []byte(`[{"protocol":"smoke","destination":"10.0.0.0/8"}]`))
	s.cf("security-groups", "No security groups found.")
	s.cf("create-security-group web rules.json", "OK")
	s.cf("create-security-group web rules.json", "Security group with name 'web' already exists.", "OK")
	s.refuses("create-security-group broken broken.json", `rules[0].protocol: must be 'tcp', 'udp', 'icmp', 'icmpv6' or 'all', not "smoke"`)
	s.cf("bind-security-group web local --space dev", "OK")
	s.cf("bind-security-group web local --lifecycle staging", "OK")
	s.refuses("bind-security-group none local", "Security group 'none' not found.")
	s.refuses("bind-security-group web nowhere", "Organization 'nowhere' not found.")
	s.refuses("bind-security-group web local --space nowhere", "Space 'nowhere' not found.")
	s.cf("security-group web", "^ *local +dev *$", `"destination": "10.0.0.0/8"`)
	s.refuses("security-group none", "Security group 'none' not found.")
	s.cf("security-groups", "^web +local +dev +running$", "^web +local +dev +staging$")
	s.cf("unbind-security-group web local dev", "OK")
	s.cf("unbind-security-group web local dev --lifecycle staging", "OK")
	s.cf("unbind-security-group web local dev", "OK")
	s.cf("bind-running-security-group web", "OK")
	s.cf("running-security-groups", "^web$")
	s.cf("bind-staging-security-group web", "OK")
	s.cf("staging-security-groups", "^web$")
	s.cf("unbind-running-security-group web", "OK")
	s.cf("running-security-groups", "!web")
	s.cf("unbind-staging-security-group web", "OK")
	s.cf("staging-security-groups", "!web")
	s.cf("update-security-group web rules.json", "OK")
	s.refuses("update-security-group none rules.json", "Security group 'none' not found.")
	s.cf("delete-security-group web -f", "OK")
	s.cf("delete-security-group web -f", "Security group 'web' does not exist.", "OK")
}

func (s *stock) keepsSegments() {
	s.cf("create-isolation-segment quiet", "OK")
	s.cf("create-isolation-segment quiet", "Isolation segment 'quiet' already exists.", "OK")
	s.cf("enable-org-isolation local quiet", "OK")
	s.refuses("enable-org-isolation local none", "Isolation segment 'none' not found.")
	s.cf("isolation-segments", "^quiet +local$")
	s.cf("set-space-isolation-segment dev quiet", "OK")
	s.cf("space dev", "^isolation segment: +quiet")
	s.cf("reset-space-isolation-segment dev", "OK")
	s.cf("set-org-default-isolation-segment local quiet", "OK")
	s.cf("org local", "^isolation segments: +quiet \\(default\\)")
	s.refuses("set-org-default-isolation-segment local none", "Isolation segment 'none' not found.")
	s.cf("reset-org-default-isolation-segment local", "OK")
	s.cf("disable-org-isolation local quiet", "OK")
	s.cf("delete-isolation-segment quiet -f", "OK")
	s.cf("delete-isolation-segment quiet -f", "Isolation segment quiet does not exist.", "OK")
}

func (s *stock) keepsFlags() {
	s.cf("feature-flags", `^task_creation +enabled`)
	s.cf("disable-feature-flag task_creation", "OK")
	s.cf("feature-flag task_creation", `^task_creation +disabled`)
	s.cf("enable-feature-flag task_creation", "OK")
	s.cf("feature-flag task_creation", `^task_creation +enabled`)
	s.refuses("feature-flag flying", "Feature flag 'flying' not found.")
	s.refuses("enable-feature-flag flying", "Feature flag 'flying' not found.")
	s.refuses("disable-feature-flag flying", "Feature flag 'flying' not found.")
}

func (s *stock) keepsStacks() {
	s.cf("stack host", "name: host")
	s.cf("stack host --guid", `^[0-9a-f-]{36}$`)
	s.refuses("stack none", "Stack 'none' not found")
	s.cf("update-stack host --state deprecated --reason soon", "OK")
	s.cf("stack host", "state: DEPRECATED", "reason: soon")
	s.cf("update-stack host --state active", "OK")
	s.refuses("update-stack none --state active", "Stack 'none' not found")
}

func (s *stock) keepsBuildpacks() {
	scripts := map[string]string{"detect": "exit 1", "compile": "true", "release": "echo {}"}
	zip := s.pack("mine.zip", scripts)
	s.cf("create-buildpack mine "+zip+" 2 --disable", "OK")
	s.refuses("create-buildpack mine "+zip+" 1", "Must have unique name and stack combination: buildpack 'mine': a buildpack with this name and stack already exists")
	s.cf("buildpacks", `^2 +mine +false +false .*mine\.zip`)
	s.cf("buildpacks --lifecycle buildpack", "^2 +mine ")
	s.cf("update-buildpack mine -i 1 --enable --lock", "OK")
	s.refuses("update-buildpack mine -p "+zip, "buildpack 'mine': the buildpack is locked: unlock it first")
	s.cf("update-buildpack mine --unlock", "OK")
	s.cf("update-buildpack mine -p "+zip+" --rename ours", "OK")
	s.cf("update-buildpack ours --assign-stack host", "OK")
	s.cf("update-buildpack ours -s host --disable", "OK")
	s.cf("buildpacks", `^1 +ours +host +false +false .*mine\.zip`)
	s.refuses("update-buildpack none --enable", "Buildpack 'none' not found")
	s.cf("delete-buildpack ours -f", "OK")
	s.cf("delete-buildpack ours -f", "Buildpack 'ours' not found.", "OK")
	s.refuses("delete-buildpack go_buildpack -f", "is built in and cannot be deleted")
}

func (s *stock) keepsLabels() {
	s.cf("create-route dew.localhost --hostname tagged", "OK")
	s.cf("create-user-provided-service mail", "OK")
	for _, thing := range []string{
		"app shop", "org local", "space dev", "buildpack go_buildpack", "domain dew.localhost", "route tagged.dew.localhost",
		"stack host", "service-instance mail", "service-offering redis", "service-plan small -e redis",
	} {
		name, more, _ := cutLast(thing, " -e ")
		if more != "" {
			more = " -e " + more
		}
		s.cf("set-label "+name+" tier=front shop.example/kind=fruit"+more, "OK")
		s.cf("labels "+thing, "^tier +front$", "^shop.example/kind +fruit$")
		s.cf("unset-label "+name+" tier"+more, "OK")
		s.cf("labels "+thing, "!tier front", "^shop.example/kind +fruit$")
	}
	s.refuses("labels app none", "App 'none' not found.")
	s.refuses("set-label app shop bad-=x", "metadata.labels[bad-]: a key must have at most 63 letters")
	s.cf("apps --labels shop.example/kind=fruit", "^shop +started")
	s.cf("apps --labels shop.example/kind=meat", "No apps found")
	s.cf("routes --labels shop.example/kind", "^dev +tagged ")
	s.cf("buildpacks --labels shop.example/kind", "^.*go_buildpack", "!binary_buildpack")
	s.cf("stacks --labels shop.example/kind", `^host\b`)
	s.cf("orgs --labels shop.example/kind", "local")
	s.cf("spaces --labels shop.example/kind", "dev")
	s.cf("delete shop -f", "OK")
}
