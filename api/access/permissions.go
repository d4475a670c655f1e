package access

import (
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
)

// SeesDomain tells whether a domain is seen: one that all share by everybody, another
// by who works in one of its orgs.
func (perms Permissions) SeesDomain(d app.Domain) bool {
	return perms.All || d.Org == "" || perms.memberOrgs[d.Org] || slices.ContainsFunc(d.SharedWith, func(org string) bool { return perms.memberOrgs[org] })
}

// EventReaders are the space roles that can read the audit events of the space. Managers
// of the space or the org cannot.
var EventReaders = []auth.RoleType{auth.SpaceDeveloper, auth.SpaceAuditor, auth.SpaceSupporter}

// SeesEvent tells whether an event is seen: it is where it happened that counts. What
// happens in an org is for its auditors: it names people and places that a member may
// not know.
func (perms Permissions) SeesEvent(e app.Event) bool {
	heard := func(r auth.RoleType) bool { return slices.Contains(EventReaders, r) }
	return perms.All || slices.ContainsFunc(perms.Roles[e.Space], heard) || slices.Contains(perms.Roles[e.Org], auth.OrgAuditor)
}

// SeesSegment tells whether a segment is seen: one that an org may use that is.
func (perms Permissions) SeesSegment(g app.Segment) bool {
	return perms.All || slices.ContainsFunc(g.Orgs, perms.SeesOrg)
}

// Among are those of the orgs that are seen.
func (perms Permissions) Among(orgs []string) []string {
	return slices.DeleteFunc(slices.Clone(orgs), func(guid string) bool { return !perms.SeesOrg(guid) })
}

// SeesGroup tells whether a group is seen: one for all spaces, or for a space that
// is.
func (perms Permissions) SeesGroup(g app.SecurityGroup) bool {
	return perms.All || g.Running || g.Staging || slices.ContainsFunc(slices.Concat(g.Runs, g.Stages), perms.SeesSpace)
}

// SeesBroker tells whether the caller can see a broker. Developers and supporters of a
// space can see its brokers.
func (perms Permissions) SeesBroker(b services.ServiceBroker) bool {
	return perms.All || b.Space != "" && perms.Can(Support, b.Space)
}

// SeesService tells whether a service instance is seen: in its space, or in one that
// it is shared with.
func (perms Permissions) SeesService(i services.Instance) bool {
	return perms.SeesSpace(i.Space) || slices.ContainsFunc(i.SharedWith, perms.SeesSpace)
}
