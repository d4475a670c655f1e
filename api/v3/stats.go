package v3

import "time"

// The states of an instance, with the names of Cloud Foundry.
const (
	StateRunning  = "RUNNING"
	StateStarting = "STARTING"
	StateCrashed  = "CRASHED"
	StateStopping = "STOPPING"
	StateDown     = "DOWN"
)

// Stats is the response of GET /v3/processes/:guid/stats: one item for each desired
// instance of a started app, in the order of their index. It includes instances that do
// not run.
type Stats struct {
	Resources []InstanceStats `json:"resources"`
}

// InstanceStats is the state and resource usage of one instance.
type InstanceStats struct {
	Type             string         `json:"type"`
	Index            int            `json:"index"`
	State            string         `json:"state"`
	Routable         *bool          `json:"routable"`
	Host             string         `json:"host,omitempty"`
	InternalIP       string         `json:"instance_internal_ip,omitempty"`
	InstancePorts    []InstancePort `json:"instance_ports,omitempty"`
	Uptime           int64          `json:"uptime"` // seconds in this state
	MemQuota         int64          `json:"mem_quota"`
	DiskQuota        int64          `json:"disk_quota"`
	LogRateLimit     int64          `json:"log_rate_limit"` // -1 for none
	FDsQuota         int64          `json:"fds_quota"`
	IsolationSegment *string        `json:"isolation_segment"`
	Details          *string        `json:"details"`
	Usage            Usage          `json:"usage"`

	InstanceGUID string `json:"instance_guid,omitempty"`

	// The rest are dew's own fields. Cloud Foundry clients ignore them.
	Version    string    `json:"version,omitempty"` // if it differs from the process's version, changes wait for the next start
	CrashCount int       `json:"crash_count,omitempty"`
	NextStart  time.Time `json:"next_start,omitzero"` // during the delay after a crash
	GivenUp    bool      `json:"given_up,omitempty"`
	Parts      []Part    `json:"parts,omitempty"` // the process and its sidecars, while it runs
}

// Part is the resource usage of the process of an instance, or of one of its sidecars.
type Part struct {
	Sidecar  string `json:"sidecar,omitempty"` // empty for the process itself
	Mem      int64  `json:"mem"`
	MemQuota int64  `json:"mem_quota,omitempty"` // 0 if only the whole instance has a quota
}

// InstancePort is a port of an instance. There is no TLS proxy for it.
type InstancePort struct {
	External    int  `json:"external"`
	Internal    int  `json:"internal"`
	ExternalTLS *int `json:"external_tls_proxy_port"`
	InternalTLS *int `json:"internal_tls_proxy_port"`
}

// Usage is the present resource usage of an instance. CPU is in cores. CPUEntitlement
// is relative to the cores that the instance's memory entitles it to.
type Usage struct {
	Time           string   `json:"time,omitempty"`
	CPU            float64  `json:"cpu"`
	CPUEntitlement *float64 `json:"cpu_entitlement"`
	Mem            int64    `json:"mem"`
	Disk           int64    `json:"disk"`
	LogRate        int64    `json:"log_rate"`
}
