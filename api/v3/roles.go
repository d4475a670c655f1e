package v3

// Role gives a user permissions in an organization or in a space.
type Role struct {
	GUID          string            `json:"guid"`
	CreatedAt     Time              `json:"created_at"`
	UpdatedAt     Time              `json:"updated_at"`
	Type          string            `json:"type"`
	Relationships RoleRelationships `json:"relationships"`
	Links         Links             `json:"links"`
	Included      map[string]any    `json:"included,omitempty"` // only in responses for a single role
}

// RoleRelationships of a role. Exactly one of Organization and Space is set.
type RoleRelationships struct {
	User         ToOne `json:"user"`
	Organization ToOne `json:"organization"`
	Space        ToOne `json:"space"`
}

// CreateRole is the body of POST /v3/roles.
type CreateRole struct {
	Type          string                  `json:"type"`
	Relationships CreateRoleRelationships `json:"relationships"`
}

// CreateRoleRelationships of a role to create.
type CreateRoleRelationships struct {
	User         ToUser `json:"user"`
	Organization ToOne  `json:"organization,omitzero"`
	Space        ToOne  `json:"space,omitzero"`
}

// ToUser is a relationship to a user.
type ToUser struct {
	Data *UserName `json:"data"`
}

// UserName identifies a user by guid, or by name and origin.
type UserName struct {
	GUID     string `json:"guid,omitempty"`
	Username string `json:"username,omitempty"`
	Origin   string `json:"origin,omitempty"`
}
