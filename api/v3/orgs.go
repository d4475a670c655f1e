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

// CreateOrganization is the body of POST /v3/organizations.
type CreateOrganization struct {
	Name      string    `json:"name"`
	Suspended bool      `json:"suspended,omitempty"`
	Metadata  *Metadata `json:"metadata,omitempty"`
}

// UpdateOrganization is the body of PATCH /v3/organizations/:guid. Missing keys do not
// change.
type UpdateOrganization struct {
	Name      *string   `json:"name,omitempty"`
	Suspended *bool     `json:"suspended,omitempty"`
	Metadata  *Metadata `json:"metadata,omitempty"`
}

// Related is a relationship as returned by its own URL.
type Related struct {
	Data  *GUID `json:"data"`
	Links Links `json:"links"`
}
