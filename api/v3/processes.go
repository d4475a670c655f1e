package v3

// Process is one type of an app's processes.
type Process struct {
	GUID              string               `json:"guid"`
	CreatedAt         Time                 `json:"created_at"`
	UpdatedAt         Time                 `json:"updated_at"`
	Version           string               `json:"version"`
	Type              string               `json:"type"`
	Command           *string              `json:"command"` // null for the droplet's
	User              string               `json:"user,omitempty"`
	Instances         int                  `json:"instances"`
	MemoryInMB        int                  `json:"memory_in_mb"`
	DiskInMB          int                  `json:"disk_in_mb"`
	LogRateLimit      int64                `json:"log_rate_limit_in_bytes_per_second"` // -1 for none
	HealthCheck       HealthCheck          `json:"health_check"`
	ReadinessCheck    HealthCheck          `json:"readiness_health_check"`
	Relationships     ProcessRelationships `json:"relationships"`
	Metadata          Metadata             `json:"metadata"`
	Links             Links                `json:"links"`
	EmbeddedInstances []ProcessInstance    `json:"process_instances,omitzero"` // with embed=process_instances
}

// ProcessInstance is the short form of an instance inside a process.
type ProcessInstance struct {
	Index int    `json:"index"`
	State string `json:"state"`
	Since int64  `json:"since"` // seconds in this state
}

// ProcessRelationships of a process.
type ProcessRelationships struct {
	App      ToOne  `json:"app"`
	Revision *ToOne `json:"revision,omitempty"`
}

// HealthCheck says how the health of a process is checked.
type HealthCheck struct {
	Type string          `json:"type"` // port, http or process
	Data HealthCheckData `json:"data"`
}

// HealthCheckData are the times of a check in seconds. Null is the default.
type HealthCheckData struct {
	Timeout           *int   `json:"timeout"`
	InvocationTimeout *int   `json:"invocation_timeout"`
	Interval          *int   `json:"interval"`
	Endpoint          string `json:"endpoint,omitempty"` // only for http
}

// UpdateProcess is the body of PATCH /v3/processes/:guid. Missing keys do not change.
type UpdateProcess struct {
	Command        Nullable[string]   `json:"command,omitzero"`
	HealthCheck    *UpdateHealthCheck `json:"health_check,omitempty"`
	ReadinessCheck *UpdateHealthCheck `json:"readiness_health_check,omitempty"`
	Metadata       *Metadata          `json:"metadata,omitempty"`
}

// UpdateHealthCheck changes a check. Missing keys do not change.
type UpdateHealthCheck struct {
	Type *string                `json:"type,omitempty"`
	Data *UpdateHealthCheckData `json:"data,omitempty"`
}

// UpdateHealthCheckData changes the times of a check.
type UpdateHealthCheckData struct {
	Timeout           Nullable[Int]    `json:"timeout,omitzero"`
	InvocationTimeout Nullable[Int]    `json:"invocation_timeout,omitzero"`
	Interval          Nullable[Int]    `json:"interval,omitzero"`
	Endpoint          Nullable[string] `json:"endpoint,omitzero"`
}

// Scale is the body of POST …/actions/scale. Missing keys do not change.
type Scale struct {
	Instances    *Int `json:"instances,omitempty"`
	MemoryInMB   *Int `json:"memory_in_mb,omitempty"`
	DiskInMB     *Int `json:"disk_in_mb,omitempty"`
	LogRateLimit *Int `json:"log_rate_limit_in_bytes_per_second,omitempty"`
}
