package v3

import "time"

// Status is the answer of GET /dew/v1/status: what this daemon is and does.
type Status struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Cell       string    `json:"cell"`
	StartedAt  time.Time `json:"started_at"`
	Root       string    `json:"root"`
	Run        string    `json:"run"`
	API        string    `json:"api"`    // public URL
	Router     string    `json:"router"` // URL without a host: http://127.0.0.1:8080
	Domain     string    `json:"domain"` // of app routes
	Containerd string    `json:"containerd"`
	Apps       int       `json:"apps"`
	Started    int       `json:"started"`   // apps that are wished to run
	Instances  int       `json:"instances"` // wished
	Running    int       `json:"running"`
	Crashed    int       `json:"crashed"`
	// SetAside is what dewd cannot repair now and tries again.
	SetAside []SetAside `json:"set_aside,omitempty"`
	// RefusedURLs are stored ones that only an administrator could set now.
	RefusedURLs []RefusedURL `json:"refused_urls,omitempty"`

	LogRetention      int64 `json:"log_retention,omitempty"`       // bytes of log kept per app
	LogRetentionAsked int64 `json:"log_retention_asked,omitempty"` // --log-retention; more is kept of no log than a quarter of the file system
}

// RefusedURL is a stored URL that keeps working, and that a user who is not an
// administrator could not set now.
type RefusedURL struct {
	Kind string `json:"kind"` // "service broker", "log drain" or "route service"
	GUID string `json:"guid"` // of the service broker or service instance
	Name string `json:"name"`
	Host string `json:"host"` // with the port that the URL names
	Why  string `json:"why"`
}

// SetAside is something of one stack, app or service that dewd cannot repair now. It
// does not keep dewd from running everything else.
type SetAside struct {
	Part  string    `json:"part"` // stacks, packages, instances, services, …
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Crashes is the answer of GET /dew/v1/apps/:guid/crashes: one page, newest first
// unless order_by says otherwise.
type Crashes struct {
	Pagination Pagination `json:"pagination"`
	Crashes    []Crash    `json:"crashes"`
}

// Crash is one instance that crashed: its exit record in full.
type Crash struct {
	App            string       `json:"app"`
	Process        string       `json:"process"` // guid
	Type           string       `json:"type"`    // of the process
	Index          int          `json:"index"`
	Instance       string       `json:"instance"`
	Cell           string       `json:"cell"`
	Version        string       `json:"version"`
	Droplet        string       `json:"droplet,omitempty"`
	Reason         string       `json:"reason"`
	Description    string       `json:"description"`
	Phase          string       `json:"phase"` // starting, running, unwatched
	First          CrashExit    `json:"first"`
	ProbableSignal int          `json:"probable_signal,omitempty"`
	Order          string       `json:"order,omitempty"` // together, late
	Followers      []CrashExit  `json:"followers"`
	Lines          []CrashLines `json:"lines"`
	Count          int          `json:"count"` // crashes in a row
	CrashedAt      time.Time    `json:"crashed_at"`
	NextStart      time.Time    `json:"next_start,omitzero"`
	GivenUp        bool         `json:"given_up,omitempty"`
	Complete       bool         `json:"complete"` // every process of it has ended
	Kept           bool         `json:"kept"`     // its files are kept, and can be entered
}

// CrashExit is one process of it that ended.
type CrashExit struct {
	Source      string    `json:"source"` // APP/PROC/WEB/SIDECAR/CONFIG SERVER
	Sidecar     string    `json:"sidecar,omitempty"`
	Code        int       `json:"code"`
	OutOfMemory bool      `json:"out_of_memory,omitempty"`
	Cause       string    `json:"cause"`
	Detail      string    `json:"detail,omitempty"`
	At          time.Time `json:"at"`
	MemoryLimit int64     `json:"memory_limit"` // bytes; 0: only the container's
	MemoryPeak  int64     `json:"memory_peak"`
}

// CrashLines is where the last lines of a process stand in the app's log.
type CrashLines struct {
	Source string `json:"source"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
}

// Kill is the body of POST /dew/v1/processes/:guid/kill: send a signal to one
// process of an instance. No sidecar: the process itself.
type Kill struct {
	Index   int    `json:"index"`
	Sidecar string `json:"sidecar,omitempty"`
	Signal  string `json:"signal,omitempty"` // KILL, TERM, … without SIG
}

// Shutdown is the body of POST /dew/v1/shutdown: the daemon leaves after it has
// answered, and the apps stay unless Apps is set.
type Shutdown struct {
	Apps bool `json:"apps"`
}

// CauseOutOfMemory is the cause of an exit that the kernel made for memory.
const CauseOutOfMemory = "out_of_memory"
