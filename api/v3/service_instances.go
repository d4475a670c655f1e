package v3

import "encoding/json"

// The types of a service instance.
const (
	ServiceManaged      = "managed"
	ServiceUserProvided = "user-provided"
)

// ServiceInstance is a service that apps can be bound to. Fields of one type are absent
// from the other.
type ServiceInstance struct {
	GUID             string                       `json:"guid"`
	CreatedAt        Time                         `json:"created_at"`
	UpdatedAt        Time                         `json:"updated_at"`
	Name             string                       `json:"name"`
	Tags             []string                     `json:"tags"` // never null
	Type             string                       `json:"type"` // ServiceManaged or ServiceUserProvided
	MaintenanceInfo  *MaintenanceInfo             `json:"maintenance_info,omitempty"`
	UpgradeAvailable *bool                        `json:"upgrade_available,omitempty"`
	DashboardURL     Nullable[string]             `json:"dashboard_url,omitzero"`
	SyslogDrainURL   Nullable[string]             `json:"syslog_drain_url,omitzero"`
	RouteServiceURL  Nullable[string]             `json:"route_service_url,omitzero"`
	LastOperation    LastOperation                `json:"last_operation"`
	Relationships    ServiceInstanceRelationships `json:"relationships"`
	Metadata         Metadata                     `json:"metadata"`
	Links            Links                        `json:"links"`
	Included         map[string]any               `json:"included,omitempty"` // only in responses for a single instance
}

// LastOperation is the last operation and its state.
type LastOperation struct {
	Type        string `json:"type"`  // create, update or delete
	State       string `json:"state"` // initial, in progress, succeeded or failed
	Description string `json:"description"`
	CreatedAt   Time   `json:"created_at"`
	UpdatedAt   Time   `json:"updated_at"`
}

// ServiceInstanceRelationships of a service instance. Only a managed one has a plan.
type ServiceInstanceRelationships struct {
	ServicePlan *ToOne `json:"service_plan,omitempty"`
	Space       ToOne  `json:"space"`
}

// CreateServiceInstance is the body of POST /v3/service_instances.
type CreateServiceInstance struct {
	Type            string                       `json:"type"`
	Name            string                       `json:"name"`
	Tags            []string                     `json:"tags,omitempty"`
	Parameters      json.RawMessage              `json:"parameters,omitempty"`  // only managed
	Credentials     json.RawMessage              `json:"credentials,omitempty"` // only user-provided, as the next two
	SyslogDrainURL  string                       `json:"syslog_drain_url,omitempty"`
	RouteServiceURL string                       `json:"route_service_url,omitempty"`
	Relationships   ServiceInstanceRelationships `json:"relationships"`
	Metadata        *Metadata                    `json:"metadata,omitempty"`
}

// UpdateServiceInstance is the body of PATCH /v3/service_instances/:guid. Missing keys
// do not change.
type UpdateServiceInstance struct {
	Name            *string                             `json:"name,omitempty"`
	Tags            *[]string                           `json:"tags,omitempty"`
	Parameters      json.RawMessage                     `json:"parameters,omitempty"`
	MaintenanceInfo *MaintenanceInfo                    `json:"maintenance_info,omitempty"`
	Credentials     json.RawMessage                     `json:"credentials,omitempty"`
	SyslogDrainURL  Nullable[string]                    `json:"syslog_drain_url,omitzero"`
	RouteServiceURL Nullable[string]                    `json:"route_service_url,omitzero"`
	Relationships   *UpdateServiceInstanceRelationships `json:"relationships,omitempty"`
	Metadata        *Metadata                           `json:"metadata,omitempty"`
}

// UpdateServiceInstanceRelationships name the new plan.
type UpdateServiceInstanceRelationships struct {
	ServicePlan ToOne `json:"service_plan"`
}

// ServiceInstancePermissions is the response of GET
// /v3/service_instances/:guid/permissions.
type ServiceInstancePermissions struct {
	Read   bool `json:"read"`
	Manage bool `json:"manage"`
}

// SharedSpaces is the response of
// /v3/service_instances/:guid/relationships/shared_spaces.
type SharedSpaces struct {
	Data     []GUID         `json:"data"` // never null
	Links    Links          `json:"links"`
	Included map[string]any `json:"included,omitempty"`
}

// ShareServiceInstance is the body of POST there.
type ShareServiceInstance struct {
	Data []GUID `json:"data"`
}

// UsageSummary is the response of …/relationships/shared_spaces/usage_summary.
type UsageSummary struct {
	UsageSummary []SpaceUsage `json:"usage_summary"` // never null
	Links        Links        `json:"links"`
}

// SpaceUsage is the number of apps of a space that are bound.
type SpaceUsage struct {
	Space         GUID `json:"space"`
	BoundAppCount int  `json:"bound_app_count"`
}

// ServiceSnapshot is a copy of the data of a service instance. It is dew's own.
type ServiceSnapshot struct {
	GUID      string `json:"guid"`
	CreatedAt Time   `json:"created_at"`
	Size      int64  `json:"size_in_bytes"`
}

// ServiceSnapshots is the response of GET /dew/v1/service_instances/:guid/snapshots,
// newest first.
type ServiceSnapshots struct {
	Snapshots []ServiceSnapshot `json:"snapshots"` // never null
}

// AppBindings is the response of GET /dew/v1/apps/:guid/bindings.
type AppBindings struct {
	Bindings []AppBinding `json:"bindings"` // never null
}

// AppBinding is a service that an app is bound to.
type AppBinding struct {
	GUID  string `json:"guid"`
	Name  string `json:"name"`  // name of the service instance
	State string `json:"state"` // type and state of its last operation, such as "create succeeded"
	// SinceStaging is true if the binding is newer than the app's droplet, so that only
	// a restage uses it.
	SinceStaging bool `json:"since_staging"`
}
