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

// DomainRelationships of a domain; a shared one belongs to no organization.
type DomainRelationships struct {
	Organization ToOne `json:"organization"`
}
