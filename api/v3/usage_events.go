package v3

// AppUsageEvent is a change in the resource usage of an app.
type AppUsageEvent struct {
	GUID         string       `json:"guid"`
	CreatedAt    Time         `json:"created_at"`
	UpdatedAt    Time         `json:"updated_at"`
	State        StateChange  `json:"state"`
	App          OptionalName `json:"app"`
	Process      ProcessName  `json:"process"`
	Space        OptionalName `json:"space"`
	Organization GUID         `json:"organization"`
	Buildpack    OptionalName `json:"buildpack"`
	Task         OptionalName `json:"task"`
	Memory       NumberChange `json:"memory_in_mb_per_instance"`
	Instances    NumberChange `json:"instance_count"`
	Links        Links        `json:"links"`
}

// ServiceUsageEvent is a change in the usage of services.
type ServiceUsageEvent struct {
	GUID            string              `json:"guid"`
	CreatedAt       Time                `json:"created_at"`
	UpdatedAt       Time                `json:"updated_at"`
	State           string              `json:"state"`
	Space           OptionalName        `json:"space"`
	Organization    GUID                `json:"organization"`
	ServiceInstance ServiceInstanceName `json:"service_instance"`
	ServicePlan     OptionalName        `json:"service_plan"`
	ServiceOffering OptionalName        `json:"service_offering"`
	ServiceBroker   OptionalName        `json:"service_broker"`
	Links           Links               `json:"links"`
}

// StateChange is a state and the previous one.
type StateChange struct {
	Current  string  `json:"current"`
	Previous *string `json:"previous"`
}

// NumberChange is a number and the previous one.
type NumberChange struct {
	Current  int `json:"current"`
	Previous int `json:"previous"`
}

// OptionalName is a guid and a name. Both are null if there is no such resource.
type OptionalName struct {
	GUID *string `json:"guid"`
	Name *string `json:"name"`
}

// ProcessName identifies a process. Its fields are null if there is none.
type ProcessName struct {
	GUID *string `json:"guid"`
	Type *string `json:"type"`
}

// ServiceInstanceName identifies a service instance.
type ServiceInstanceName struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Type string `json:"type"`
}
