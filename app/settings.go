package app

import "time"

// Flag is a feature that an administrator may switch.
type Flag struct {
	Name      string    `json:"name"`
	Enabled   bool      `json:"enabled"`
	Message   string    `json:"message,omitempty"` // for who is refused
	UpdatedAt time.Time `json:"updated_at,omitzero"`

	// Fixed says why it cannot be switched; empty: it can.
	Fixed string `json:"-"`
}

// The feature flags that can be switched.
const (
	FlagBitsUpload      = "app_bits_upload"
	FlagScaling         = "app_scaling"
	FlagDocker          = "diego_docker"
	FlagEnvVisibility   = "env_var_visibility"
	FlagSpaceEnv        = "space_developer_env_var_visibility"
	FlagResourceMatch   = "resource_matching"
	FlagRouteCreation   = "route_creation"
	FlagUserOrgCreation = "user_org_creation"
	FlagPrivateDomains  = "private_domain_creation"
	FlagSetRoles        = "set_roles_by_username"
	FlagServiceCreation = "service_instance_creation"
	FlagServiceSharing  = "service_instance_sharing"
	FlagRouteSharing    = "route_sharing"
	FlagSpaceBrokers    = "space_scoped_private_broker_creation"
	FlagTaskCreation    = "task_creation"
	FlagHideMarket      = "hide_marketplace_from_unauthenticated_users"
)

// The groups of environment variables that there are.
const (
	RunningGroup = "running" // all instances and tasks have them
	StagingGroup = "staging" // all builds have them
)

// EnvGroup is a group of environment variables that all apps have in common. An
// app's own of the same name wins. Instances find a change at their next start.
type EnvGroup struct {
	Name      string            `json:"name"`
	Var       map[string]string `json:"var,omitempty"`
	UpdatedAt time.Time         `json:"updated_at,omitzero"` // zero: nobody has changed it
}
