package v3

// Revision is the state of an app when it was started or deployed.
type Revision struct {
	GUID          string                     `json:"guid"`
	Version       int                        `json:"version"`
	Droplet       GUID                       `json:"droplet"`
	Processes     map[string]RevisionProcess `json:"processes"` // by type
	Sidecars      []RevisionSidecar          `json:"sidecars"`
	Description   string                     `json:"description"`
	Deployable    bool                       `json:"deployable"`
	Relationships RevisionRelationships      `json:"relationships"`
	CreatedAt     Time                       `json:"created_at"`
	UpdatedAt     Time                       `json:"updated_at"`
	Metadata      Metadata                   `json:"metadata"`
	Links         Links                      `json:"links"`
}

// RevisionProcess is a process in a revision.
type RevisionProcess struct {
	Command *string `json:"command"` // null for the droplet's
}

// RevisionSidecar is a sidecar in a revision.
type RevisionSidecar struct {
	Name         string   `json:"name"`
	Command      string   `json:"command"`
	MemoryInMB   *int     `json:"memory_in_mb"` // null if not declared
	ProcessTypes []string `json:"process_types"`
}

// RevisionRelationships of a revision.
type RevisionRelationships struct {
	App ToOne `json:"app"`
}
