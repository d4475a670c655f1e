package v3

import "encoding/json"

// ServiceBroker provides service instances.
type ServiceBroker struct {
	GUID          string                     `json:"guid"`
	Name          string                     `json:"name"`
	URL           string                     `json:"url"`
	CreatedAt     Time                       `json:"created_at"`
	UpdatedAt     Time                       `json:"updated_at"`
	Relationships ServiceBrokerRelationships `json:"relationships"`
	Metadata      Metadata                   `json:"metadata"`
	Links         Links                      `json:"links"`
}

// ServiceBrokerRelationships of a broker. Only a space-scoped broker has them.
type ServiceBrokerRelationships struct {
	Space *ToOne `json:"space,omitempty"`
}

// CreateServiceBroker is the body of POST /v3/service_brokers.
type CreateServiceBroker struct {
	Name           string                     `json:"name"`
	URL            string                     `json:"url"`
	Authentication BrokerAuthentication       `json:"authentication"`
	Relationships  ServiceBrokerRelationships `json:"relationships,omitzero"`
	Metadata       *Metadata                  `json:"metadata,omitempty"`
}

// UpdateServiceBroker is the body of PATCH /v3/service_brokers/:guid.
type UpdateServiceBroker struct {
	Name           *string               `json:"name,omitempty"`
	URL            *string               `json:"url,omitempty"`
	Authentication *BrokerAuthentication `json:"authentication,omitempty"`
	Metadata       *Metadata             `json:"metadata,omitempty"`
}

// AuthenticationBasic is the only authentication type of brokers.
const AuthenticationBasic = "basic"

// BrokerAuthentication is how dew authenticates to a broker.
type BrokerAuthentication struct {
	Type        string            `json:"type"` // AuthenticationBasic
	Credentials BrokerCredentials `json:"credentials"`
}

// BrokerCredentials are a name and a password.
type BrokerCredentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// ServiceOffering is a service of a broker, with one or more plans.
type ServiceOffering struct {
	GUID             string                       `json:"guid"`
	Name             string                       `json:"name"`
	Description      string                       `json:"description"`
	Available        bool                         `json:"available"`
	Tags             []string                     `json:"tags"`     // never null
	Requires         []string                     `json:"requires"` // never null
	CreatedAt        Time                         `json:"created_at"`
	UpdatedAt        Time                         `json:"updated_at"`
	Shareable        bool                         `json:"shareable"`
	DocumentationURL *string                      `json:"documentation_url"`
	BrokerCatalog    OfferingCatalog              `json:"broker_catalog"`
	Relationships    ServiceOfferingRelationships `json:"relationships"`
	Metadata         Metadata                     `json:"metadata"`
	Links            Links                        `json:"links"`
	Included         map[string]any               `json:"included,omitempty"` // only in responses for a single offering
}

// OfferingCatalog is an offering's entry in the broker's catalog.
type OfferingCatalog struct {
	ID       string           `json:"id"`
	Metadata json.RawMessage  `json:"metadata"`
	Features OfferingFeatures `json:"features"`
}

// OfferingFeatures are the features of an offering.
type OfferingFeatures struct {
	PlanUpdateable       bool `json:"plan_updateable"`
	Bindable             bool `json:"bindable"`
	InstancesRetrievable bool `json:"instances_retrievable"`
	BindingsRetrievable  bool `json:"bindings_retrievable"`
	AllowContextUpdates  bool `json:"allow_context_updates"`
}

// ServiceOfferingRelationships of an offering.
type ServiceOfferingRelationships struct {
	ServiceBroker ToOne `json:"service_broker"`
}

// ServicePlan is a plan of an offering.
type ServicePlan struct {
	GUID            string                   `json:"guid"`
	Name            string                   `json:"name"`
	Description     string                   `json:"description"`
	VisibilityType  string                   `json:"visibility_type"`
	Available       bool                     `json:"available"`
	Free            bool                     `json:"free"`
	Costs           []ServiceCost            `json:"costs"` // never null
	CreatedAt       Time                     `json:"created_at"`
	UpdatedAt       Time                     `json:"updated_at"`
	MaintenanceInfo MaintenanceInfo          `json:"maintenance_info"`
	BrokerCatalog   PlanCatalog              `json:"broker_catalog"`
	Schemas         ServiceSchemas           `json:"schemas"`
	Relationships   ServicePlanRelationships `json:"relationships"`
	Metadata        Metadata                 `json:"metadata"`
	Links           Links                    `json:"links"`
	Included        map[string]any           `json:"included,omitempty"` // only in responses for a single plan
}

// ServiceCost is one price of a plan.
type ServiceCost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
	Unit     string  `json:"unit"`
}

// MaintenanceInfo is the version of a plan's service.
type MaintenanceInfo struct {
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
}

// PlanCatalog is a plan's entry in the broker's catalog.
type PlanCatalog struct {
	ID                     string          `json:"id"`
	Metadata               json.RawMessage `json:"metadata"`
	MaximumPollingDuration *int            `json:"maximum_polling_duration"`
	Features               PlanFeatures    `json:"features"`
}

// PlanFeatures are the features of a plan.
type PlanFeatures struct {
	PlanUpdateable bool `json:"plan_updateable"`
	Bindable       bool `json:"bindable"`
}

// ServiceSchemas are the schemas of a plan's parameters.
type ServiceSchemas struct {
	ServiceInstance InstanceSchemas `json:"service_instance"`
	ServiceBinding  BindingSchemas  `json:"service_binding"`
}

// InstanceSchemas are the schemas for creating and updating.
type InstanceSchemas struct {
	Create ParametersSchema `json:"create"`
	Update ParametersSchema `json:"update"`
}

// BindingSchemas are the schemas for binding.
type BindingSchemas struct {
	Create ParametersSchema `json:"create"`
}

// ParametersSchema is a JSON schema, or an empty object.
type ParametersSchema struct {
	Parameters json.RawMessage `json:"parameters"`
}

// ServicePlanRelationships of a plan. Only a plan of a space-scoped broker has Space.
type ServicePlanRelationships struct {
	ServiceOffering ToOne  `json:"service_offering"`
	Space           *ToOne `json:"space,omitempty"`
}

// The visibility types of a plan.
const (
	VisibilityPublic       = "public"
	VisibilityAdmin        = "admin"
	VisibilityOrganization = "organization"
	VisibilitySpace        = "space"
)

// PlanVisibility is the response of GET /v3/service_plans/:guid/visibility, and the
// body of POST (add) and PATCH (replace) there.
type PlanVisibility struct {
	Type          string      `json:"type"`
	Organizations []NamedGUID `json:"organizations,omitempty"`
	Space         *NamedGUID  `json:"space,omitempty"`
}

// NamedGUID identifies a resource by guid and also has its name.
type NamedGUID struct {
	GUID string `json:"guid"`
	Name string `json:"name,omitempty"`
}
