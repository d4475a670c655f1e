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

// NetworkPolicies is the body of requests and responses about network policies, in the
// form of Cloud Foundry's policy server.
type NetworkPolicies struct {
	Total    int             `json:"total_policies,omitempty"`
	Policies []NetworkPolicy `json:"policies"`
}

// NetworkPolicy allows one app to connect to ports of another.
type NetworkPolicy struct {
	Source      NetworkPolicySource      `json:"source"`
	Destination NetworkPolicyDestination `json:"destination"`
}

// NetworkPolicySource is the app that connects.
type NetworkPolicySource struct {
	ID string `json:"id"` // guid
}

// NetworkPolicyDestination is the app that accepts the connections.
type NetworkPolicyDestination struct {
	ID       string             `json:"id"` // guid
	Protocol string             `json:"protocol"`
	Ports    NetworkPolicyPorts `json:"ports"`
}

// NetworkPolicyPorts is a range of ports.
type NetworkPolicyPorts struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// NetworkPolicyError is an error of the policy server, which other clients read. It also
// has the form of all other errors.
type NetworkPolicyError struct {
	Error  string  `json:"error"`
	Errors []Error `json:"errors"`
}
