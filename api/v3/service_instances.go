package v3

import "encoding/json"

// The types of a service instance.
const (
	ServiceManaged      = "managed"
	ServiceUserProvided = "user-provided"
)

// ServiceInstance is a service that apps can be bound to. What belongs to one type
// alone is absent from the other.
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
	Included         map[string]any               `json:"included,omitempty"` // of a single one
}

// LastOperation is what was done last, and how far it is.
type LastOperation struct {
	Type        string `json:"type"`  // create, update, delete
	State       string `json:"state"` // initial, in progress, succeeded, failed
	Description string `json:"description"`
	CreatedAt   Time   `json:"created_at"`
	UpdatedAt   Time   `json:"updated_at"`
}

// ServiceInstanceRelationships of a service instance; only a managed one has a plan.
type ServiceInstanceRelationships struct {
	ServicePlan *ToOne `json:"service_plan,omitempty"`
	Space       ToOne  `json:"space"`
}

// CreateServiceInstance is the body of POST /v3/service_instances.
type CreateServiceInstance struct {
	Type            string                       `json:"type"`
	Name            string                       `json:"name"`
	Tags            []string                     `json:"tags,omitempty"`
	Parameters      json.RawMessage              `json:"parameters,omitempty"`  // managed
	Credentials     json.RawMessage              `json:"credentials,omitempty"` // user-provided, and the next two
	SyslogDrainURL  string                       `json:"syslog_drain_url,omitempty"`
	RouteServiceURL string                       `json:"route_service_url,omitempty"`
	Relationships   ServiceInstanceRelationships `json:"relationships"`
	Metadata        *Metadata                    `json:"metadata,omitempty"`
}

// UpdateServiceInstance is the body of PATCH /v3/service_instances/:guid. What is
// absent stays as it is.
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

// UpdateServiceInstanceRelationships name the plan that is to be.
type UpdateServiceInstanceRelationships struct {
	ServicePlan ToOne `json:"service_plan"`
}

// ServiceInstancePermissions is the answer of GET
// /v3/service_instances/:guid/permissions.
type ServiceInstancePermissions struct {
	Read   bool `json:"read"`
	Manage bool `json:"manage"`
}

// SharedSpaces is the answer of /v3/service_instances/:guid/relationships/shared_spaces.
type SharedSpaces struct {
	Data     []GUID         `json:"data"` // never null
	Links    Links          `json:"links"`
	Included map[string]any `json:"included,omitempty"`
}

// ShareServiceInstance is the body of POST there.
type ShareServiceInstance struct {
	Data []GUID `json:"data"`
}

// UsageSummary is the answer of …/relationships/shared_spaces/usage_summary.
type UsageSummary struct {
	UsageSummary []SpaceUsage `json:"usage_summary"` // never null
	Links        Links        `json:"links"`
}

// SpaceUsage is how many apps of a space are bound.
type SpaceUsage struct {
	Space         GUID `json:"space"`
	BoundAppCount int  `json:"bound_app_count"`
}

// ServiceSnapshot is a copy of the data of a service instance, of this daemon alone.
type ServiceSnapshot struct {
	GUID      string `json:"guid"`
	CreatedAt Time   `json:"created_at"`
	Size      int64  `json:"size_in_bytes"`
}

// ServiceSnapshots is the answer of GET /dew/v1/service_instances/:guid/snapshots,
// newest first.
type ServiceSnapshots struct {
	Snapshots []ServiceSnapshot `json:"snapshots"` // never null
}

// AppBindings is the answer of GET /dew/v1/apps/:guid/bindings.
type AppBindings struct {
	Bindings []AppBinding `json:"bindings"` // never null
}

// AppBinding is a service that an app is bound to.
type AppBinding struct {
	GUID  string `json:"guid"`
	Name  string `json:"name"`  // of the service instance
	State string `json:"state"` // of its last operation: "create succeeded"
	// SinceStaging: the droplet of the app knows nothing of it, a restage does.
	SinceStaging bool `json:"since_staging"`
}
