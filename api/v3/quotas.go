package v3

// Quota is what an organization may have; null is no limit.
type Quota struct {
	GUID          string             `json:"guid"`
	CreatedAt     Time               `json:"created_at"`
	UpdatedAt     Time               `json:"updated_at"`
	Name          string             `json:"name"`
	Apps          AppLimits          `json:"apps"`
	Services      ServiceLimits      `json:"services"`
	Routes        RouteLimits        `json:"routes"`
	Domains       DomainLimits       `json:"domains"`
	Relationships QuotaRelationships `json:"relationships"`
	Metadata      Metadata           `json:"metadata"`
	Links         Links              `json:"links"`
}

// AppLimits bound apps.
type AppLimits struct {
	TotalMemory      *int `json:"total_memory_in_mb"`
	PerProcessMemory *int `json:"per_process_memory_in_mb"`
	LogRateLimit     *int `json:"log_rate_limit_in_bytes_per_second"`
	TotalInstances   *int `json:"total_instances"`
	PerAppTasks      *int `json:"per_app_tasks"`
}

// ServiceLimits bound service instances.
type ServiceLimits struct {
	PaidServicesAllowed   bool `json:"paid_services_allowed"`
	TotalServiceInstances *int `json:"total_service_instances"`
	TotalServiceKeys      *int `json:"total_service_keys"`
}

// RouteLimits bound routes.
type RouteLimits struct {
	TotalRoutes        *int `json:"total_routes"`
	TotalReservedPorts *int `json:"total_reserved_ports"`
}

// DomainLimits bound domains.
type DomainLimits struct {
	TotalDomains *int `json:"total_domains"`
}

// QuotaRelationships of a quota.
type QuotaRelationships struct {
	Organizations ToMany `json:"organizations"`
}
