package v3

// Quota limits the resources of an organization or a space. Null is no limit.
type Quota struct {
	GUID          string             `json:"guid"`
	CreatedAt     Time               `json:"created_at"`
	UpdatedAt     Time               `json:"updated_at"`
	Name          string             `json:"name"`
	Apps          AppLimits          `json:"apps"`
	Services      ServiceLimits      `json:"services"`
	Routes        RouteLimits        `json:"routes"`
	Domains       *DomainLimits      `json:"domains,omitempty"` // only of an organization quota
	Relationships QuotaRelationships `json:"relationships"`
	Links         Links              `json:"links"`
}

// AppLimits limit apps.
type AppLimits struct {
	TotalMemory      *int `json:"total_memory_in_mb"`
	PerProcessMemory *int `json:"per_process_memory_in_mb"`
	LogRateLimit     *int `json:"log_rate_limit_in_bytes_per_second"`
	TotalInstances   *int `json:"total_instances"`
	PerAppTasks      *int `json:"per_app_tasks"`
}

// ServiceLimits limit service instances.
type ServiceLimits struct {
	PaidServicesAllowed   bool `json:"paid_services_allowed"`
	TotalServiceInstances *int `json:"total_service_instances"`
	TotalServiceKeys      *int `json:"total_service_keys"`
}

// RouteLimits limit routes.
type RouteLimits struct {
	TotalRoutes        *int `json:"total_routes"`
	TotalReservedPorts *int `json:"total_reserved_ports"`
}

// DomainLimits limit domains.
type DomainLimits struct {
	TotalDomains *int `json:"total_domains"`
}

// QuotaRelationships of a quota. An organization quota has organizations. A space quota
// has the organization that it belongs to, and spaces.
type QuotaRelationships struct {
	Organization  *ToOne  `json:"organization,omitempty"`
	Organizations *ToMany `json:"organizations,omitempty"`
	Spaces        *ToMany `json:"spaces,omitempty"`
}

// ChangeQuota is the body of POST and PATCH of quotas. Missing keys do not change, null
// is no limit.
type ChangeQuota struct {
	Name          string              `json:"name,omitempty"`
	Apps          ChangeAppLimits     `json:"apps,omitzero"`
	Services      ChangeServiceLimits `json:"services,omitzero"`
	Routes        ChangeRouteLimits   `json:"routes,omitzero"`
	Domains       ChangeDomainLimits  `json:"domains,omitzero"`
	Relationships *QuotaRelationships `json:"relationships,omitempty"` // only when it is created
}

// ChangeAppLimits changes AppLimits.
type ChangeAppLimits struct {
	TotalMemory      Nullable[int] `json:"total_memory_in_mb,omitzero"`
	PerProcessMemory Nullable[int] `json:"per_process_memory_in_mb,omitzero"`
	LogRateLimit     Nullable[int] `json:"log_rate_limit_in_bytes_per_second,omitzero"`
	TotalInstances   Nullable[int] `json:"total_instances,omitzero"`
	PerAppTasks      Nullable[int] `json:"per_app_tasks,omitzero"`
}

// ChangeServiceLimits changes ServiceLimits.
type ChangeServiceLimits struct {
	PaidServicesAllowed   *bool         `json:"paid_services_allowed,omitempty"`
	TotalServiceInstances Nullable[int] `json:"total_service_instances,omitzero"`
	TotalServiceKeys      Nullable[int] `json:"total_service_keys,omitzero"`
}

// ChangeRouteLimits changes RouteLimits.
type ChangeRouteLimits struct {
	TotalRoutes        Nullable[int] `json:"total_routes,omitzero"`
	TotalReservedPorts Nullable[int] `json:"total_reserved_ports,omitzero"`
}

// ChangeDomainLimits changes DomainLimits.
type ChangeDomainLimits struct {
	TotalDomains Nullable[int] `json:"total_domains,omitzero"`
}

// RelatedMany is a relationship to many as returned by its own URL.
type RelatedMany struct {
	Data  []GUID `json:"data"`
	Links Links  `json:"links"`
}

// PlaceUsage is the resource usage of an organization or a space.
type PlaceUsage struct {
	Usage UsageNumbers `json:"usage_summary"`
	Links Links        `json:"links"`
}

// UsageNumbers are the numbers of a PlaceUsage.
type UsageNumbers struct {
	StartedInstances int  `json:"started_instances"`
	MemoryInMB       int  `json:"memory_in_mb"`
	Routes           int  `json:"routes"`
	ServiceInstances int  `json:"service_instances"`
	ReservedPorts    int  `json:"reserved_ports"`
	Domains          *int `json:"domains,omitempty"` // only of an organization
	PerAppTasks      int  `json:"per_app_tasks"`
	ServiceKeys      int  `json:"service_keys"`
}
