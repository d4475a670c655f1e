package v3

// SecurityGroup is a set of rules for traffic that leaves containers.
type SecurityGroup struct {
	GUID            string                     `json:"guid"`
	CreatedAt       Time                       `json:"created_at"`
	UpdatedAt       Time                       `json:"updated_at"`
	Name            string                     `json:"name"`
	Rules           []SecurityRule             `json:"rules"`
	GloballyEnabled GloballyEnabled            `json:"globally_enabled"`
	Relationships   SecurityGroupRelationships `json:"relationships"`
	Links           Links                      `json:"links"`
}

// SecurityRule allows some traffic.
type SecurityRule struct {
	Protocol    string `json:"protocol"`
	Destination string `json:"destination"`
	Ports       string `json:"ports,omitempty"`
	Type        *int   `json:"type,omitempty"`
	Code        *int   `json:"code,omitempty"`
	Description string `json:"description,omitempty"`
	Log         bool   `json:"log,omitempty"`
}

// GloballyEnabled says for which containers of all spaces a group applies.
type GloballyEnabled struct {
	Running bool `json:"running"`
	Staging bool `json:"staging"`
}

// SecurityGroupRelationships of a security group.
type SecurityGroupRelationships struct {
	RunningSpaces ToMany `json:"running_spaces"`
	StagingSpaces ToMany `json:"staging_spaces"`
}

// ChangeSecurityGroup is the body of POST and PATCH of security groups. Missing keys do
// not change.
type ChangeSecurityGroup struct {
	Name            string                            `json:"name,omitempty"`
	Rules           *[]SecurityRule                   `json:"rules,omitempty"`
	GloballyEnabled *ChangeGloballyEnabled            `json:"globally_enabled,omitempty"`
	Relationships   *CreateSecurityGroupRelationships `json:"relationships,omitempty"` // only when it is created
}

// ChangeGloballyEnabled changes GloballyEnabled.
type ChangeGloballyEnabled struct {
	Running *bool `json:"running,omitempty"`
	Staging *bool `json:"staging,omitempty"`
}

// CreateSecurityGroupRelationships of a group to create.
type CreateSecurityGroupRelationships struct {
	RunningSpaces *ToMany `json:"running_spaces,omitempty"`
	StagingSpaces *ToMany `json:"staging_spaces,omitempty"`
}
