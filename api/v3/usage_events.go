package v3

// AppUsageEvent is a change in what an app takes.
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

// ServiceUsageEvent is a change in what services take.
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

// StateChange is a state and the one before.
type StateChange struct {
	Current  string  `json:"current"`
	Previous *string `json:"previous"`
}

// NumberChange is a number and the one before.
type NumberChange struct {
	Current  int `json:"current"`
	Previous int `json:"previous"`
}

// OptionalName is something with a guid and a name, or nothing.
type OptionalName struct {
	GUID *string `json:"guid"`
	Name *string `json:"name"`
}

// ProcessName is a process, or nothing.
type ProcessName struct {
	GUID *string `json:"guid"`
	Type *string `json:"type"`
}

// ServiceInstanceName is a service instance.
type ServiceInstanceName struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Type string `json:"type"`
}
