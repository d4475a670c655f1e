package v3

// Organization holds spaces.
type Organization struct {
	GUID          string                    `json:"guid"`
	CreatedAt     Time                      `json:"created_at"`
	UpdatedAt     Time                      `json:"updated_at"`
	Name          string                    `json:"name"`
	Suspended     bool                      `json:"suspended"`
	Relationships OrganizationRelationships `json:"relationships"`
	Metadata      Metadata                  `json:"metadata"`
	Links         Links                     `json:"links"`
}

// OrganizationRelationships of an organization.
type OrganizationRelationships struct {
	Quota ToOne `json:"quota"`
}

// Space holds apps and routes.
type Space struct {
	GUID          string             `json:"guid"`
	CreatedAt     Time               `json:"created_at"`
	UpdatedAt     Time               `json:"updated_at"`
	Name          string             `json:"name"`
	Relationships SpaceRelationships `json:"relationships"`
	Metadata      Metadata           `json:"metadata"`
	Links         Links              `json:"links"`
}

// SpaceRelationships of a space.
type SpaceRelationships struct {
	Organization ToOne `json:"organization"`
	Quota        ToOne `json:"quota"`
}
