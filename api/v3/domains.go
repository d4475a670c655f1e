package v3

// Domain is the part of a route's name that many routes share.
type Domain struct {
	GUID               string              `json:"guid"`
	CreatedAt          Time                `json:"created_at"`
	UpdatedAt          Time                `json:"updated_at"`
	Name               string              `json:"name"`
	Internal           bool                `json:"internal"`
	RouterGroup        *GUID               `json:"router_group"`
	SupportedProtocols []string            `json:"supported_protocols"`
	Relationships      DomainRelationships `json:"relationships"`
	Metadata           Metadata            `json:"metadata"`
	Links              Links               `json:"links"`
}

// RouterGroup provides the ports of TCP routes, in the format of the routing API.
type RouterGroup struct {
	GUID            string `json:"guid"`
	Name            string `json:"name"`
	Type            string `json:"type"`
	ReservablePorts string `json:"reservable_ports"` // such as 20000-20099
}

// DomainRelationships of a domain. A shared domain belongs to no organization.
type DomainRelationships struct {
	Organization        ToOne  `json:"organization"`
	SharedOrganizations ToMany `json:"shared_organizations"`
}

// ToMany is a relationship to any number of resources. Data is never null.
type ToMany struct {
	Data []GUID `json:"data"`
}

// CreateDomain is the body of POST /v3/domains. Without relationships, all
// organizations share the domain.
type CreateDomain struct {
	Name          string                     `json:"name"`
	Internal      *bool                      `json:"internal,omitempty"`
	RouterGroup   *GUID                      `json:"router_group,omitempty"`
	Relationships *CreateDomainRelationships `json:"relationships,omitempty"`
	Metadata      *Metadata                  `json:"metadata,omitempty"`
}

// CreateDomainRelationships of a domain to create.
type CreateDomainRelationships struct {
	Organization        *ToOne  `json:"organization,omitempty"`
	SharedOrganizations *ToMany `json:"shared_organizations,omitempty"`
}

// UpdateDomain is the body of PATCH /v3/domains/:guid.
type UpdateDomain struct {
	Metadata *Metadata `json:"metadata,omitempty"`
}
