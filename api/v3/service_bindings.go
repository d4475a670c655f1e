package v3

import "encoding/json"

// The types of a service credential binding.
const (
	BindingApp = "app"
	BindingKey = "key"
)

// ServiceCredentialBinding gives an app, or the holder of a service key, the
// credentials of a service instance.
type ServiceCredentialBinding struct {
	GUID          string                         `json:"guid"`
	CreatedAt     Time                           `json:"created_at"`
	UpdatedAt     Time                           `json:"updated_at"`
	Name          *string                        `json:"name"`
	Type          string                         `json:"type"` // BindingApp or BindingKey
	LastOperation LastOperation                  `json:"last_operation"`
	Relationships CredentialBindingRelationships `json:"relationships"`
	Metadata      Metadata                       `json:"metadata"`
	Links         Links                          `json:"links"`
	Included      map[string]any                 `json:"included,omitempty"` // only in responses for a single binding
}

// CredentialBindingRelationships of a binding. A key has no app.
type CredentialBindingRelationships struct {
	App             *ToOne `json:"app,omitempty"`
	ServiceInstance ToOne  `json:"service_instance"`
}

// CreateCredentialBinding is the body of POST /v3/service_credential_bindings.
type CreateCredentialBinding struct {
	Type          string                         `json:"type"`
	Name          string                         `json:"name,omitempty"`
	Strategy      string                         `json:"strategy,omitempty"` // StrategySingle or StrategyMultiple
	Parameters    json.RawMessage                `json:"parameters,omitempty"`
	Relationships CredentialBindingRelationships `json:"relationships"`
	Metadata      *Metadata                      `json:"metadata,omitempty"`
}

// How many bindings an app can have to one service instance.
const (
	StrategySingle   = "single"
	StrategyMultiple = "multiple"
)

// BindingDetails is the response of GET /v3/service_credential_bindings/:guid/details.
type BindingDetails struct {
	Credentials    json.RawMessage `json:"credentials"`
	SyslogDrainURL *string         `json:"syslog_drain_url,omitempty"`
	VolumeMounts   json.RawMessage `json:"volume_mounts"`
}

// ServiceRouteBinding sends the requests of a route through a service first.
type ServiceRouteBinding struct {
	GUID            string                           `json:"guid"`
	CreatedAt       Time                             `json:"created_at"`
	UpdatedAt       Time                             `json:"updated_at"`
	RouteServiceURL string                           `json:"route_service_url"`
	LastOperation   LastOperation                    `json:"last_operation"`
	Relationships   ServiceRouteBindingRelationships `json:"relationships"`
	Metadata        Metadata                         `json:"metadata"`
	Links           Links                            `json:"links"`
	Included        map[string]any                   `json:"included,omitempty"` // only in responses for a single binding
}

// ServiceRouteBindingRelationships of a route binding.
type ServiceRouteBindingRelationships struct {
	Route           ToOne `json:"route"`
	ServiceInstance ToOne `json:"service_instance"`
}

// CreateServiceRouteBinding is the body of POST /v3/service_route_bindings.
type CreateServiceRouteBinding struct {
	Parameters    json.RawMessage                  `json:"parameters,omitempty"`
	Relationships ServiceRouteBindingRelationships `json:"relationships"`
	Metadata      *Metadata                        `json:"metadata,omitempty"`
}
