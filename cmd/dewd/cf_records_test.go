//go:build integration

package main

import (
	"strings"
	"testing"
)

// The stock client keeps quotas, groups of rules and of variables, and segments.
// Variables reach what runs; the others are remembered, and refuse nothing.
func TestCFRecords(t *testing.T) {
	s := newStockClient(t)
	s.write("app/Procfile", []byte("web: echo proxy=$PROXY own=$OWN; sleep 1000\n"))
	s.write("rules.json", []byte(`[{"protocol":"tcp","destination":"10.0.0.0/8","ports":"443"}]`))

	s.run(0, []string{"OK"}, "set-running-environment-variable-group", `{"PROXY":"everywhere","OWN":"group"}`)
	s.run(0, []string{`(?m)^PROXY +everywhere$`}, "running-environment-variable-group")
	s.run(0, []string{"OK"}, "set-staging-environment-variable-group", `{"MIRROR":"here"}`)
	s.run(0, []string{`(?m)^MIRROR +here$`}, "staging-environment-variable-group")
	s.run(0, nil, "push", "shop", "--no-manifest", "-p", "app", "-b", "binary_buildpack", "-u", "process", "-m", "64M", "--no-route")
	s.run(0, nil, "set-env", "shop", "OWN", "app")
	s.run(0, nil, "restart", "shop")
	s.eventuallySays("proxy=everywhere own=app", "logs", "shop", "--recent")
	s.run(0, []string{`(?s)Running Environment Variable Groups:.*PROXY: everywhere`, `(?s)Staging Environment Variable Groups:.*MIRROR: here`}, "env", "shop")

	s.run(0, []string{"OK"}, "create-org-quota", "small", "-m", "200M", "-i", "100M", "-a", "2", "-r", "5", "-s", "0")
	s.run(0, []string{"already exists"}, "create-org-quota", "small")
	s.run(0, []string{`(?m)^small +200M +100M +5 +0 `, `(?m)^unlimited `}, "org-quotas")
	s.run(0, []string{`total memory: +200M`, `app instances: +2`}, "org-quota", "small")
	s.run(0, []string{"OK"}, "set-org-quota", "local", "small")
	s.run(0, []string{`(?m)^quota: +small`}, "org", "local")
	s.run(0, nil, "scale", "shop", "-i", "3")
	s.run(0, nil, "scale", "shop", "-m", "128M", "-f")
	s.run(0, nil, "run-task", "shop", "--command", "true", "-m", "100M")
	s.run(0, []string{"OK"}, "update-org-quota", "small", "-n", "larger", "-m", "1G", "--allow-paid-service-plans")
	s.run(0, []string{`total memory: +1G`}, "org-quota", "larger")
	s.run(0, []string{"OK"}, "delete-org-quota", "larger", "-f")
	s.run(0, []string{`(?m)^quota: +unlimited`}, "org", "local")

	s.run(0, []string{"OK"}, "create-space-quota", "tight", "-m", "128M", "-a", "2")
	s.run(0, []string{`(?m)^tight +128M`}, "space-quotas")
	s.run(0, []string{"OK"}, "set-space-quota", "dev", "tight")
	s.run(0, []string{`(?m)^quota: +tight`}, "space", "dev")
	s.run(0, nil, "scale", "shop", "-i", "2")
	s.run(0, []string{"OK"}, "unset-space-quota", "dev", "tight")
	s.run(0, []string{"OK"}, "update-space-quota", "tight", "-n", "loose")
	s.run(0, []string{`total memory: +128M`}, "space-quota", "loose")
	s.run(0, []string{"OK"}, "delete-space-quota", "loose", "-f")
	s.keepsGroups()
	s.keepsSegments()
	if got := s.output("curl", "/v3/app_usage_events?order_by=-created_at&per_page=1"); !strings.Contains(got, `"total_results"`) {
		t.Errorf("usage = %s", got)
	}
}

func (s stockClient) keepsGroups() {
	s.t.Helper()
	s.run(0, []string{"OK"}, "create-security-group", "web", "rules.json")
	s.run(0, []string{"already exists"}, "create-security-group", "web", "rules.json")
	s.run(0, []string{"OK"}, "bind-security-group", "web", "local", "--space", "dev")
	s.run(0, []string{`(?m)^ *local +dev *$`, `"destination": "10.0.0.0/8"`}, "security-group", "web")
	s.run(0, []string{"OK"}, "unbind-security-group", "web", "local", "dev")
	s.run(0, []string{"OK"}, "bind-running-security-group", "web")
	s.run(0, []string{`(?m)^web$`}, "running-security-groups")
	s.run(0, []string{"OK"}, "bind-staging-security-group", "web")
	s.run(0, []string{`(?m)^web$`}, "staging-security-groups")
	s.run(0, []string{"OK"}, "unbind-running-security-group", "web")
	s.run(0, []string{"OK"}, "unbind-staging-security-group", "web")
	s.run(0, []string{"OK"}, "update-security-group", "web", "rules.json")
	s.run(0, []string{`(?m)^web `}, "security-groups")
	s.run(0, []string{"OK"}, "delete-security-group", "web", "-f")
}

func (s stockClient) keepsSegments() {
	s.t.Helper()
	s.run(0, []string{"OK"}, "create-isolation-segment", "quiet")
	s.run(0, []string{"already exists"}, "create-isolation-segment", "quiet")
	s.run(0, []string{"OK"}, "enable-org-isolation", "local", "quiet")
	s.run(0, []string{`(?m)^quiet +local$`}, "isolation-segments")
	s.run(0, []string{"OK"}, "set-space-isolation-segment", "dev", "quiet")
	s.run(0, []string{`(?m)^isolation segment: +quiet`}, "space", "dev")
	s.run(0, []string{"OK"}, "reset-space-isolation-segment", "dev")
	s.run(0, []string{"OK"}, "set-org-default-isolation-segment", "local", "quiet")
	s.run(0, []string{"OK"}, "reset-org-default-isolation-segment", "local")
	s.run(0, []string{"OK"}, "disable-org-isolation", "local", "quiet")
	s.run(0, []string{"OK"}, "delete-isolation-segment", "quiet", "-f")
}
