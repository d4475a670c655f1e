package v3

// Space holds apps and routes.
type Space struct {
	GUID          string             `json:"guid"`
	CreatedAt     Time               `json:"created_at"`
	UpdatedAt     Time               `json:"updated_at"`
	Name          string             `json:"name"`
	Relationships SpaceRelationships `json:"relationships"`
	Metadata      Metadata           `json:"metadata"`
	Links         Links              `json:"links"`
	Included      map[string]any     `json:"included,omitempty"` // only in responses for a single space
}

// SpaceRelationships of a space.
type SpaceRelationships struct {
	Organization ToOne `json:"organization"`
	Quota        ToOne `json:"quota"`
}

// CreateSpace is the body of POST /v3/spaces.
type CreateSpace struct {
	Name          string                   `json:"name"`
	Relationships CreateSpaceRelationships `json:"relationships"`
	Metadata      *Metadata                `json:"metadata,omitempty"`
}

// CreateSpaceRelationships of a space to create.
type CreateSpaceRelationships struct {
	Organization ToOne `json:"organization"`
}

// UpdateSpace is the body of PATCH /v3/spaces/:guid. Missing keys do not change.
type UpdateSpace struct {
	Name     *string   `json:"name,omitempty"`
	Metadata *Metadata `json:"metadata,omitempty"`
}

// SpaceFeature is a feature of a space that can be enabled or disabled.
type SpaceFeature struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

// UpdateSpaceFeature is the body of PATCH /v3/spaces/:guid/features/:name.
type UpdateSpaceFeature struct {
	Enabled *bool `json:"enabled"`
}

// SpaceFeatures is the response of GET /v3/spaces/:guid/features.
type SpaceFeatures struct {
	Resources []SpaceFeature `json:"resources"`
}
