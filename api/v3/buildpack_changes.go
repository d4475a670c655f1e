package v3

// UploadedFolder is the response of POST /dew/v1/spaces/{guid}/buildpacks.
type UploadedFolder struct {
	Name string `json:"name"` // name of the buildpack for the apps of the space
}

// CreateBuildpack is the body of POST /v3/buildpacks.
type CreateBuildpack struct {
	Name      string    `json:"name"`
	Stack     *string   `json:"stack,omitempty"`
	Position  *int      `json:"position,omitempty"`
	Enabled   *bool     `json:"enabled,omitempty"`
	Locked    *bool     `json:"locked,omitempty"`
	Lifecycle string    `json:"lifecycle,omitempty"`
	Metadata  *Metadata `json:"metadata,omitempty"`
}

// UpdateBuildpack is the body of PATCH /v3/buildpacks/:guid. Missing keys do not
// change.
type UpdateBuildpack struct {
	Name     *string   `json:"name,omitempty"`
	Stack    *string   `json:"stack,omitempty"`
	Position *int      `json:"position,omitempty"`
	Enabled  *bool     `json:"enabled,omitempty"`
	Locked   *bool     `json:"locked,omitempty"`
	Metadata *Metadata `json:"metadata,omitempty"`
}

// CreateDroplet is the body of POST /v3/droplets: a droplet whose files are uploaded.
type CreateDroplet struct {
	ProcessTypes  map[string]string    `json:"process_types,omitempty"`
	Relationships DropletRelationships `json:"relationships"`
}

// BuildpackAwaiting is the state of a buildpack without files.
const BuildpackAwaiting = "AWAITING_UPLOAD"
