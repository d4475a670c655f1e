package platform

import "context"

// OpDeleteSecurityGroup is the job that deletes a security group.
const OpDeleteSecurityGroup = "security_group.delete"

func (del Deletions) deleteSecurityGroup(_ context.Context, guid string) error {
	return ignoreNotFound(del.Registry.DeleteSecurityGroup(guid))
}
