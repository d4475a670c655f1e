package access

import (
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
)

// SeesDomain reports whether the caller can see a domain. All callers see a shared
// domain. A private domain is visible to managers, auditors and users with a space role
// in one of its orgs.
func (perms Permissions) SeesDomain(d app.Domain) bool {
	return perms.All || d.Org == "" || perms.workingOrgs[d.Org] || slices.ContainsFunc(d.SharedWith, func(org string) bool { return perms.workingOrgs[org] })
}

// EventReaders are the space roles that can read the audit events of the space. Managers
// of the space or the org cannot.
var EventReaders = []auth.RoleType{auth.SpaceDeveloper, auth.SpaceAuditor, auth.SpaceSupporter}

// SeesEvent reports whether the caller can see an event. The place of the event
// decides. Events of an org are only for its auditors, because they name people and
// spaces that a member must not know.
func (perms Permissions) SeesEvent(e app.Event) bool {
	canReadEvents := func(r auth.RoleType) bool { return slices.Contains(EventReaders, r) }
	return perms.All || slices.ContainsFunc(perms.Roles[e.Space], canReadEvents) || slices.Contains(perms.Roles[e.Org], auth.OrgAuditor)
}

// SeesSegment reports whether the caller can see a segment: one of the caller's orgs
// must be entitled to it.
func (perms Permissions) SeesSegment(g app.Segment) bool {
	return perms.All || slices.ContainsFunc(g.Orgs, perms.SeesOrg)
}

// Among returns those of the orgs that the caller can see.
func (perms Permissions) Among(orgs []string) []string {
	return slices.DeleteFunc(slices.Clone(orgs), func(guid string) bool { return !perms.SeesOrg(guid) })
}

// SeesGroup reports whether the caller can see a security group: it is for all spaces,
// or for a space that the caller can see.
func (perms Permissions) SeesGroup(g app.SecurityGroup) bool {
	return perms.All || g.Running || g.Staging || slices.ContainsFunc(slices.Concat(g.Runs, g.Stages), perms.SeesSpace)
}

// SeesBroker reports whether the caller can see a broker. Developers and supporters of
// a space can see its brokers.
func (perms Permissions) SeesBroker(b services.ServiceBroker) bool {
	return perms.All || b.Space != "" && perms.Can(Support, b.Space)
}

// SeesService reports whether the caller can see a service instance, in its space or in
// one that it is shared with.
func (perms Permissions) SeesService(i services.Instance) bool {
	return perms.SeesSpace(i.Space) || slices.ContainsFunc(i.SharedWith, perms.SeesSpace)
}
