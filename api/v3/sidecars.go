package v3

// Sidecar is an additional process in the same container as an app's own process.
type Sidecar struct {
	GUID          string               `json:"guid"`
	CreatedAt     Time                 `json:"created_at"`
	UpdatedAt     Time                 `json:"updated_at"`
	Name          string               `json:"name"`
	Command       string               `json:"command"`
	ProcessTypes  []string             `json:"process_types"`
	MemoryInMB    *int                 `json:"memory_in_mb"` // null if undeclared
	Origin        string               `json:"origin"`       // user or buildpack
	Relationships SidecarRelationships `json:"relationships"`
}

// SidecarRelationships of a sidecar.
type SidecarRelationships struct {
	App ToOne `json:"app"`
}

// CreateSidecar is the body of POST /v3/apps/:guid/sidecars.
type CreateSidecar struct {
	Name         string   `json:"name"`
	Command      string   `json:"command"`
	ProcessTypes []string `json:"process_types"`
	MemoryInMB   *Int     `json:"memory_in_mb,omitempty"`
}

// UpdateSidecar is the body of PATCH /v3/sidecars/:guid. Missing keys do not change.
type UpdateSidecar struct {
	Name         *string       `json:"name,omitempty"`
	Command      *string       `json:"command,omitempty"`
	ProcessTypes *[]string     `json:"process_types,omitempty"`
	MemoryInMB   Nullable[Int] `json:"memory_in_mb,omitzero"`
}
