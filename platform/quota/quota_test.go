package quota

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
)

func limit(n int) *int { return &n }

func process(instances, memory int) Use {
	var u Use
	u.Add("p", Member{Name: "process web of app shop", Instances: instances, Memory: memory, LogRate: -1})
	return u
}

func limitedLog(instances int, rate int64) Use {
	var u Use
	u.Add("p", Member{Name: "process web of app shop", Instances: instances, Memory: 64, LogRate: rate})
	return u
}

func withTask(u Use, memory int) Use {
	u.Add("t", Member{Name: "task t", Task: true, Instances: 1, Memory: memory})
	return u
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		limits        app.Limits
		before, after Use
		org, space    string // the start of the message; empty: allowed
	}{
		"no limit":            {app.Limits{}, Use{}, process(100, 10_000), "", ""},
		"at the limit":        {app.Limits{TotalMemory: limit(128)}, process(1, 64), process(2, 64), "", ""},
		"memory":              {app.Limits{TotalMemory: limit(128)}, process(2, 64), process(3, 64), "memory quota_exceeded\n", "memory space_quota_exceeded\n"},
		"over, scaled down":   {app.Limits{TotalMemory: limit(64)}, process(3, 64), process(2, 64), "", ""},
		"over, unchanged":     {app.Limits{TotalMemory: limit(64)}, process(3, 64), process(3, 64), "", ""},
		"memory of a task":    {app.Limits{TotalMemory: limit(64)}, process(1, 64), withTask(process(1, 64), 32), "memory_in_mb exceeds organization memory quota\n", "memory_in_mb exceeds space memory quota\n"},
		"one instance":        {app.Limits{ProcessMemory: limit(64)}, Use{}, process(1, 65), "memory instance_memory_limit_exceeded\n", "memory space_instance_memory_limit_exceeded\n"},
		"one task":            {app.Limits{ProcessMemory: limit(64)}, Use{}, withTask(Use{}, 65), "memory_in_mb exceeds organization instance memory quota\n", "memory_in_mb exceeds space instance memory quota\n"},
		"large as before":     {app.Limits{ProcessMemory: limit(64)}, process(2, 65), process(1, 65), "", ""},
		"more large ones":     {app.Limits{ProcessMemory: limit(64)}, process(1, 65), process(2, 65), "memory instance_memory_limit_exceeded\n", "memory space_instance_memory_limit_exceeded\n"},
		"instances":           {app.Limits{Instances: limit(1)}, process(1, 64), process(2, 64), "app_instance_limit app_instance_limit_exceeded\n", "app_instance_limit space_app_instance_limit_exceeded\n"},
		"a task, no instance": {app.Limits{Instances: limit(1)}, process(1, 64), withTask(process(1, 64), 64), "", ""},
		"tasks":               {app.Limits{Tasks: limit(0)}, Use{}, withTask(Use{}, 64), "app_task_limit quota exceeded\n", "app_task_limit quota exceeded\n"},
		"log rate":            {app.Limits{LogRate: limit(100)}, limitedLog(1, 60), limitedLog(2, 60), "log_rate_limit exceeds organization log rate quota\n", "log_rate_limit exceeds space log rate quota\n"},
		"no log rate":         {app.Limits{LogRate: limit(100)}, Use{}, process(1, 64), "log_rate_limit cannot be unlimited in organization 'acme'.\n", "log_rate_limit cannot be unlimited in space 'acme'.\n"},
		"no log rate, before": {app.Limits{LogRate: limit(100)}, process(2, 64), process(1, 64), "", ""},
		"routes":              {app.Limits{Routes: limit(1)}, Use{Routes: 1}, Use{Routes: 2}, "Routes quota exceeded for organization 'acme'.\n", "Routes quota exceeded for space 'acme'.\n"},
		"ports":               {app.Limits{Ports: limit(0)}, Use{}, Use{Ports: 1}, "Reserved route ports quota exceeded for organization 'acme'.\n", "Reserved route ports quota exceeded for space 'acme'.\n"},
		"services":            {app.Limits{Services: limit(1)}, Use{Services: 1}, Use{Services: 2}, "You have exceeded your organization's services limit.\n", "You have exceeded your space's services limit.\n"},
		"keys":                {app.Limits{Keys: limit(1)}, Use{Keys: 1}, Use{Keys: 2}, "You have exceeded your organization's limit for service binding of type key.\n", "You have exceeded your space's limit for service binding of type key.\n"},
	} {
		for _, p := range []Place{{Org: true, Name: "acme"}, {Name: "acme"}} {
			p.Quota = app.Quota{Name: "small", Limits: c.limits}
			want := c.space
			if p.Org {
				want = c.org
			}
			got := p.Check(c.before, c.after)
			if (got == "") != (want == "") || !strings.HasPrefix(got, want) || got != "" && !strings.Contains(got, "quota 'small' allows") {
				t.Errorf("%s (%s): %q, want %q and the numbers", name, p.kind(), got, want)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	p := Place{Org: true, Name: "acme", Quota: app.Quota{Name: "small", Limits: app.Limits{TotalMemory: limit(128), Domains: limit(1)}}}
	if got, want := p.Check(process(1, 100), process(2, 100)), "memory quota_exceeded\nOrganization quota 'small' allows 128M of memory. In use: 100M. This change needs 100M more."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := strings.Join(p.Over(process(2, 100)), ""), "organization 'acme' uses 200M of memory, and its quota 'small' allows 128M"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := p.Over(process(1, 100)); got != nil {
		t.Errorf("%q, want nothing", got)
	}
}

func TestCheckPlan(t *testing.T) {
	for _, org := range []bool{true, false} {
		p := Place{Org: org, Quota: app.Quota{Name: "small", Limits: app.Limits{NoPaid: true}}}
		if got := p.CheckPlan(true); got != "" {
			t.Errorf("a free plan is refused: %q", got)
		}
		want := "The service instance cannot be created because paid service plans are not allowed."
		if !org {
			want = "The service instance cannot be created because paid service plans are not allowed for your space."
		}
		if got := p.CheckPlan(false); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Place{}).CheckPlan(false); got != "" {
		t.Errorf("without a quota, a paid plan is refused: %q", got)
	}
}
