package app

import "time"

// Flag is a feature flag.
type Flag struct {
	Name      string    `json:"name"`
	Enabled   bool      `json:"enabled"`
	Message   string    `json:"message,omitempty"` // for refused callers
	UpdatedAt time.Time `json:"updated_at,omitzero"`

	// Fixed says why the flag cannot be changed; empty: it can.
	Fixed string `json:"-"`
}

// The feature flags that can be changed.
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

// The names of the environment variable groups.
const (
	RunningGroup = "running" // all instances and tasks have them
	StagingGroup = "staging" // all builds have them
)

// EnvGroup is a group of environment variables for all apps. A variable of the app with
// the same name wins. Instances get a change at their next start.
type EnvGroup struct {
	Name      string            `json:"name"`
	Var       map[string]string `json:"var,omitempty"`
	UpdatedAt time.Time         `json:"updated_at,omitzero"` // zero: never changed
}
