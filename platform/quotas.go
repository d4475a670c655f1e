package platform

// The jobs that remove quotas.
const (
	OpDeleteOrgQuota   = "organization_quota.delete"
	OpDeleteSpaceQuota = "space_quota.delete"
)
