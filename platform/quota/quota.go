// Package quota decides whether a change keeps an org or a space within its quota. A
// change is refused only if it uses more of something that is then over its limit, so an
// org that is already over its quota can still be scaled down. The texts are those of
// Cloud Foundry, followed by a line with the numbers.
package quota

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dewrun/dew/app"
)

// Use is what an org or a space uses.
type Use struct {
	Routes   int
	Ports    int               // ports of TCP routes
	Domains  int               // private domains of an org
	Services int               // managed service instances
	Keys     int               // service keys
	Members  map[string]Member // started processes and tasks that have not finished, by guid
}

// Member is a started process or a task.
type Member struct {
	Name      string // for messages
	Task      bool
	Instances int
	Memory    int   // MB of one instance
	LogRate   int64 // bytes per second of one instance; below 0: no limit
}

// Add adds a member.
func (u *Use) Add(guid string, m Member) {
	if u.Members == nil {
		u.Members = map[string]Member{}
	}
	u.Members[guid] = m
}

func (u Use) sum(of func(m Member) int) (n int) {
	for _, m := range u.Members {
		n += of(m)
	}
	return n
}

func memory(m Member) int { return m.Instances * m.Memory }

func instances(m Member) int {
	if m.Task {
		return 0
	}
	return m.Instances
}

func tasks(m Member) int {
	if m.Task {
		return 1
	}
	return 0
}

func logRate(m Member) int { return m.Instances * int(max(m.LogRate, 0)) }

// Place is an org or a space with its quota.
type Place struct {
	Org   bool
	Name  string
	Quota app.Quota
}

func (p Place) kind() string {
	if p.Org {
		return "organization"
	}
	return "space"
}

// rule is one limit of a quota.
type rule struct {
	limit         *int
	before, after int
	text          string // that Cloud Foundry answers
	what, unit    string // after a number: with the name of the resource, and short
}

// Check returns why a change is refused, or nothing.
func (p Place) Check(before, after Use) string {
	if text := p.checkMembers(before, after); text != "" {
		return text
	}
	for _, r := range p.rules(before, after) {
		if r.limit != nil && r.after > *r.limit && r.after > r.before {
			return fmt.Sprintf("%s\n%s '%s' allows %d%s. In use: %d%s. This change needs %d%s more.",
				r.text, p.title(), p.Quota.Name, *r.limit, r.what, r.before, r.unit, r.after-r.before, r.unit)
		}
	}
	return ""
}

// Over returns a line for each limit that is exceeded.
func (p Place) Over(u Use) []string {
	var lines []string
	for _, r := range p.rules(Use{}, u) {
		if r.limit != nil && r.after > *r.limit {
			lines = append(lines, fmt.Sprintf("%s '%s' uses %d%s, and its quota '%s' allows %d%s", p.kind(), p.Name, r.after, r.what, p.Quota.Name, *r.limit, r.unit))
		}
	}
	return lines
}

func (p Place) title() string {
	if p.Org {
		return "Organization quota"
	}
	return "Space quota"
}

func (p Place) rules(before, after Use) []rule {
	l, kind := p.Quota.Limits, p.kind()
	total := "memory quota_exceeded"
	instanceLimit := "app_instance_limit app_instance_limit_exceeded"
	if !p.Org {
		total, instanceLimit = "memory space_quota_exceeded", "app_instance_limit space_app_instance_limit_exceeded"
	}
	if newTask(before, after) {
		total = "memory_in_mb exceeds " + kind + " memory quota"
	}
	return []rule{
		{l.TotalMemory, before.sum(memory), after.sum(memory), total, "M of memory", "M"},
		{l.Instances, before.sum(instances), after.sum(instances), instanceLimit, " instances", ""},
		{l.LogRate, before.sum(logRate), after.sum(logRate), "log_rate_limit exceeds " + kind + " log rate quota", " bytes of log per second", ""},
		{l.Tasks, before.sum(tasks), after.sum(tasks), "app_task_limit quota exceeded", " tasks", ""},
		{l.Routes, before.Routes, after.Routes, fmt.Sprintf("Routes quota exceeded for %s '%s'.", kind, p.Name), " routes", ""},
		{l.Ports, before.Ports, after.Ports, fmt.Sprintf("Reserved route ports quota exceeded for %s '%s'.", kind, p.Name), " reserved ports", ""},
		{l.Domains, before.Domains, after.Domains, fmt.Sprintf("The number of private domains exceeds the quota for organization \"%s\"", p.Name), " private domains", ""},
		{l.Services, before.Services, after.Services, fmt.Sprintf("You have exceeded your %s's services limit.", kind), " service instances", ""},
		{l.Keys, before.Keys, after.Keys, fmt.Sprintf("You have exceeded your %s's limit for service binding of type key.", kind), " service keys", ""},
	}
}

func newTask(before, after Use) bool {
	for guid, m := range after.Members {
		if _, known := before.Members[guid]; m.Task && !known {
			return true
		}
	}
	return false
}

// checkMembers checks the limits of one instance or task. Only a member that is new, or
// that asks for more than before, is refused.
func (p Place) checkMembers(before, after Use) string {
	l := p.Quota.Limits
	for _, guid := range slices.Sorted(maps.Keys(after.Members)) {
		m := after.Members[guid]
		old, known := before.Members[guid]
		if l.ProcessMemory != nil && m.Memory > *l.ProcessMemory && (!known || m.Memory > old.Memory || m.Instances > old.Instances) {
			return fmt.Sprintf("%s\n%s '%s' allows %dM of memory for one instance, and %s asks for %dM.", p.instanceText(m.Task), p.title(), p.Quota.Name, *l.ProcessMemory, m.Name, m.Memory)
		}
		if l.LogRate != nil && m.LogRate < 0 && (!known || old.LogRate >= 0 || m.Instances > old.Instances) {
			return fmt.Sprintf("log_rate_limit cannot be unlimited in %s '%s'.\n%s '%s' allows %d bytes of log per second, and %s has no log rate limit. Set one (-l, or log-rate-limit-per-second in the manifest).",
				p.kind(), p.Name, p.title(), p.Quota.Name, *l.LogRate, m.Name)
		}
	}
	return ""
}

func (p Place) instanceText(task bool) string {
	switch {
	case task:
		return "memory_in_mb exceeds " + p.kind() + " instance memory quota"
	case p.Org:
		return "memory instance_memory_limit_exceeded"
	}
	return "memory space_instance_memory_limit_exceeded"
}

// CheckPlan returns why a service instance of a plan is refused, or nothing.
func (p Place) CheckPlan(free bool) string {
	if free || !p.Quota.NoPaid {
		return ""
	}
	where := ""
	if !p.Org {
		where = " for your space"
	}
	return fmt.Sprintf("The service instance cannot be created because paid service plans are not allowed%s.\n%s '%s' allows only free plans.", where, p.title(), p.Quota.Name)
}
