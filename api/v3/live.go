package v3

import "time"

// LiveApps is the response of GET /dew/v1/live: the state and the usage of all apps that
// the caller may see, in one request.
type LiveApps struct {
	Time      time.Time `json:"time"`
	Resources []LiveApp `json:"resources"` // sorted by org, space and name
}

// LiveApp is an app with its instances.
type LiveApp struct {
	GUID      string         `json:"guid"`
	Name      string         `json:"name"`
	State     string         `json:"state"` // the desired state: STARTED or STOPPED
	Space     LiveSpace      `json:"space"`
	Routes    []string       `json:"routes,omitempty"` // URLs
	LastCrash *LiveCrash     `json:"last_crash,omitempty"`
	Instances []LiveInstance `json:"instances"` // sorted by process type and index
}

// LiveSpace is the space of an app.
type LiveSpace struct {
	GUID    string `json:"guid"`
	Name    string `json:"name"`
	OrgGUID string `json:"org_guid"`
	OrgName string `json:"org_name"`
}

// LiveCrash is the newest crash of an app, explained in one sentence.
type LiveCrash struct {
	Time     time.Time `json:"time"`
	Type     string    `json:"type"`
	Index    int       `json:"index"`
	Class    string    `json:"class"`
	Sentence string    `json:"sentence"`
}

// LiveInstance is the state and the usage of one instance. The usage is missing if it
// does not run.
type LiveInstance struct {
	Type      string     `json:"type"`
	Index     int        `json:"index"`
	State     string     `json:"state"`
	Ready     bool       `json:"ready"`
	Since     time.Time  `json:"since"` // when it got this state
	Details   string     `json:"details,omitempty"`
	Restarts  int        `json:"restarts"`             // recorded crashes of this index
	NextStart time.Time  `json:"next_start,omitzero"`  // during the delay after a crash
	GivenUp   bool       `json:"given_up,omitempty"`   // no restart follows
	Mem       int64      `json:"mem"`                  // bytes, without memory that the kernel can reclaim
	MemQuota  int64      `json:"mem_quota"`            // bytes
	Disk      int64      `json:"disk"`                 // bytes
	DiskQuota int64      `json:"disk_quota"`           // bytes
	CPU       float64    `json:"cpu"`                  // cores
	LogRate   int64      `json:"log_rate"`             // bytes per second
	Requests  float64    `json:"requests_per_second"`  // from the router
	LatencyMS float64    `json:"latency_ms,omitempty"` // mean time to the response's header
	Processes []LivePart `json:"processes,omitempty"`
}

// LivePart is the usage of the main process of an instance, or of one of its sidecars.
type LivePart struct {
	Sidecar   string  `json:"sidecar,omitempty"`   // empty for the main process
	CPU       float64 `json:"cpu"`                 // cores
	Mem       int64   `json:"mem"`                 // bytes, without memory that the kernel can reclaim
	MemQuota  int64   `json:"mem_quota,omitempty"` // bytes; 0 if only the whole instance has a limit
	Cache     int64   `json:"cache"`               // bytes of files that the kernel can reclaim
	Peak      int64   `json:"peak"`                // bytes, the most since the start
	PeakEver  int64   `json:"peak_ever"`           // bytes, the most of this and of earlier instances
	Throttled float64 `json:"throttled,omitempty"` // part of the time without CPU because of a CPU limit, 0 to 1
	PIDs      int     `json:"pids"`                // processes and threads
}

// UsageHistory is the response of GET /dew/v1/apps/:guid/usage: samples of the last
// hour.
type UsageHistory struct {
	Interval  int           `json:"interval"` // seconds between samples
	Resources []UsageSeries `json:"resources"`
}

// UsageSeries has the samples of one instance. Times and all other arrays have the same
// length.
type UsageSeries struct {
	Type      string       `json:"type"`
	Index     int          `json:"index"`
	Instance  string       `json:"instance_guid"`
	Times     []int64      `json:"times"` // seconds since 1970
	Requests  []float64    `json:"requests_per_second"`
	LatencyMS []float64    `json:"latency_ms"`
	LogRate   []int64      `json:"log_rate"`
	Processes []PartSeries `json:"processes"`
}

// PartSeries has the samples of the main process, or of a sidecar.
type PartSeries struct {
	Sidecar  string    `json:"sidecar,omitempty"`
	MemQuota int64     `json:"mem_quota,omitempty"`
	Mem      []int64   `json:"mem"`
	CPU      []float64 `json:"cpu"`
}
