package v3

import "time"

// The states of an instance, as the platform names them.
const (
	StateRunning  = "RUNNING"
	StateStarting = "STARTING"
	StateCrashed  = "CRASHED"
	StateStopping = "STOPPING"
	StateDown     = "DOWN"
)

// Stats is the answer of GET /v3/processes/:guid/stats: one item for each wished
// instance of a started app, in the order of their index, also for those that do
// not run.
type Stats struct {
	Resources []InstanceStats `json:"resources"`
}

// InstanceStats is how one instance does.
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
	LogRateLimit     int64          `json:"log_rate_limit"` // -1: none
	FDsQuota         int64          `json:"fds_quota"`
	IsolationSegment *string        `json:"isolation_segment"`
	Details          *string        `json:"details"`
	Usage            Usage          `json:"usage"`

	InstanceGUID string `json:"instance_guid,omitempty"`

	// The rest is dew's own; clients of the platform pass over it.
	Version    string    `json:"version,omitempty"` // differs from the process's: changes wait for its next start
	CrashCount int       `json:"crash_count,omitempty"`
	NextStart  time.Time `json:"next_start,omitzero"` // while it waits after a crash
	GivenUp    bool      `json:"given_up,omitempty"`
	Parts      []Part    `json:"parts,omitempty"` // the process and its sidecars, while it runs
}

// Part is what the process of an instance, or one of its sidecars, uses now.
type Part struct {
	Sidecar  string `json:"sidecar,omitempty"` // empty: the process itself
	Mem      int64  `json:"mem"`
	MemQuota int64  `json:"mem_quota,omitempty"` // 0: only the quota of the whole instance
}

// InstancePort is a port of an instance. There is no proxy that speaks TLS before it.
type InstancePort struct {
	External    int  `json:"external"`
	Internal    int  `json:"internal"`
	ExternalTLS *int `json:"external_tls_proxy_port"`
	InternalTLS *int `json:"internal_tls_proxy_port"`
}

// Usage is what an instance uses now; CPU counts in cores, CPUEntitlement in parts of
// those that its memory entitles it to.
type Usage struct {
	Time           string   `json:"time,omitempty"`
	CPU            float64  `json:"cpu"`
	CPUEntitlement *float64 `json:"cpu_entitlement"`
	Mem            int64    `json:"mem"`
	Disk           int64    `json:"disk"`
	LogRate        int64    `json:"log_rate"`
}
