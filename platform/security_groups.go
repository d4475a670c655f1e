package platform

import "context"

// OpDeleteSecurityGroup is the job that removes a group.
const OpDeleteSecurityGroup = "security_group.delete"

func (p *Platform) doDeleteSecurityGroup(_ context.Context, guid string) error {
	return gone(p.Registry.DeleteSecurityGroup(guid))
}
