package v3

import "time"

// Status is the response of GET /dew/v1/status: the daemon's settings and state.
type Status struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Cell       string    `json:"cell"`
	StartedAt  time.Time `json:"started_at"`
	Root       string    `json:"root"`
	Run        string    `json:"run"`
	API        string    `json:"api"`    // public URL
	Router     string    `json:"router"` // URL without a host: http://127.0.0.1:8080
	Domain     string    `json:"domain"` // domain of app routes
	Containerd string    `json:"containerd"`
	Apps       int       `json:"apps"`
	Started    int       `json:"started"`   // apps whose desired state is started
	Instances  int       `json:"instances"` // desired number
	Running    int       `json:"running"`
	Crashed    int       `json:"crashed"`
	// SetAside are problems that dewd cannot repair now and retries.
	SetAside []SetAside `json:"set_aside,omitempty"`
	// RefusedURLs are stored URLs that only an administrator could set now.
	RefusedURLs []RefusedURL `json:"refused_urls,omitempty"`
	// OverQuota are sentences about orgs and spaces that use more than their quotas allow.
	OverQuota []string `json:"over_quota,omitempty"`
	// TLS says how clients reach the daemon over TLS. Nil means that they cannot.
	TLS *TLS `json:"tls,omitempty"`
	// Warnings are sentences about the addresses of the daemon, each with what to do.
	Warnings []string `json:"warnings,omitempty"`

	// NetworkPolicies is "on" if network policies and security groups are enforced.
	NetworkPolicies string `json:"network_policies,omitempty"`
	// InactiveGroups are the names of security groups that are stored and not enforced.
	InactiveGroups []string `json:"inactive_security_groups,omitempty"`
	// Notices are sentences that dew status shows once.
	Notices []string `json:"notices,omitempty"`

	// Mails is the queue of mails. Nil means that there is none.
	Mails *MailQueue `json:"mails,omitempty"`

	LogRetention      int64 `json:"log_retention,omitempty"`       // bytes of log stored per app
	LogRetentionAsked int64 `json:"log_retention_asked,omitempty"` // --log-retention, before the limit of a quarter of the file system
}

// TLS has the addresses of the daemon with TLS, and the certificate authority (CA) that
// clients must trust.
type TLS struct {
	API           string `json:"api,omitempty"`            // URL: https://127.0.0.1:8485; empty: none
	Router        string `json:"router,omitempty"`         // URL without a host: https://127.0.0.1:8443; empty: none
	CA            string `json:"ca,omitempty"`             // certificate in PEM; empty: the operator chose the certificate
	CAFile        string `json:"ca_file,omitempty"`        // its file on the machine of the daemon
	CAFingerprint string `json:"ca_fingerprint,omitempty"` // SHA-256
}

// RefusedURL is a stored URL that still works, but that a non-administrator could not
// set now.
type RefusedURL struct {
	Kind string `json:"kind"` // "service broker", "log drain" or "route service"
	GUID string `json:"guid"` // guid of the service broker or service instance
	Name string `json:"name"`
	Host string `json:"host"` // including the port if the URL has one
	Why  string `json:"why"`
}

// SetAside is a problem with one stack, app or service that dewd cannot repair now. It
// does not stop dewd from running everything else.
type SetAside struct {
	Part  string    `json:"part"` // stacks, packages, instances, services, …
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// Doctor is the response of GET /dew/v1/doctor.
type Doctor struct {
	CheckedAt time.Time `json:"checked_at"`
	Findings  []Finding `json:"findings"`
}

// Finding is the result of one check of dewd doctor.
type Finding struct {
	Level string `json:"level"` // ok, warn or FAIL; only FAIL means that dewd cannot run apps
	Name  string `json:"name"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"` // what to do about it
}

// Crashes is the response of GET /dew/v1/apps/:guid/crashes: one page, newest first
// unless order_by says otherwise.
type Crashes struct {
	Pagination Pagination `json:"pagination"`
	Crashes    []Crash    `json:"crashes"`
}

// Crash is the full exit record of one crashed instance.
type Crash struct {
	App            string        `json:"app"`
	Process        string        `json:"process"` // guid
	Type           string        `json:"type"`    // type of the process
	Index          int           `json:"index"`
	Instance       string        `json:"instance"`
	Cell           string        `json:"cell"`
	Version        string        `json:"version"`
	Droplet        string        `json:"droplet,omitempty"`
	Reason         string        `json:"reason"`
	Description    string        `json:"description"`
	Phase          string        `json:"phase"` // starting, running or unwatched
	First          CrashExit     `json:"first"`
	ProbableSignal int           `json:"probable_signal,omitempty"`
	Order          string        `json:"order,omitempty"` // together or late
	Followers      []CrashExit   `json:"followers"`
	Lines          []CrashLines  `json:"lines"`
	Count          int           `json:"count"` // consecutive crashes
	CrashedAt      time.Time     `json:"crashed_at"`
	NextStart      time.Time     `json:"next_start,omitzero"`
	GivenUp        bool          `json:"given_up,omitempty"`
	Complete       bool          `json:"complete"` // all processes of the instance have exited
	Kept           bool          `json:"kept"`     // its files are stored and accessible
	StartedAt      time.Time     `json:"started_at,omitzero"`
	Stack          string        `json:"stack,omitempty"`
	Port           int           `json:"port,omitempty"`         // $PORT of the instance
	MemoryLimit    int64         `json:"memory_limit,omitempty"` // of the whole instance, in bytes
	MemoryPeak     int64         `json:"memory_peak,omitempty"`
	Listening      []CrashPort   `json:"listening"` // on which its processes were listening
	Output         []CrashOutput `json:"output"`
	Verdict        Verdict       `json:"verdict"`
}

// Verdict explains a crash.
type Verdict struct {
	Class    string   `json:"class"`    // kind of cause: exited, memory_process, start_timeout, …
	Sentence string   `json:"sentence"` // what crashed and why
	Evidence []string `json:"evidence"` // facts that the sentence is based on
	Advice   string   `json:"advice"`   // what to do
}

// CrashPort is a TCP port on which a process of a crashed instance was listening.
type CrashPort struct {
	Source   string `json:"source"`
	Port     int    `json:"port"`
	Loopback bool   `json:"loopback"` // only for connections from inside the instance
}

// CrashOutput has the last lines of a process, oldest first.
type CrashOutput struct {
	Source string   `json:"source"`
	Stdout []string `json:"stdout"`
	Stderr []string `json:"stderr"`
}

// CrashExit is the exit of one process of the instance.
type CrashExit struct {
	Source      string      `json:"source"` // APP/PROC/WEB/SIDECAR/CONFIG SERVER
	Sidecar     string      `json:"sidecar,omitempty"`
	Code        int         `json:"code"`
	OutOfMemory bool        `json:"out_of_memory,omitempty"`
	Cause       string      `json:"cause"`
	Detail      string      `json:"detail,omitempty"`
	At          time.Time   `json:"at"`
	MemoryLimit int64       `json:"memory_limit"` // bytes, 0 if only the container has a limit
	MemoryPeak  int64       `json:"memory_peak"`
	SentBy      string      `json:"sent_by,omitempty"` // user who sent the signal with dew
	Sender      string      `json:"sender,omitempty"`  // process that sent the signal, if the kernel reported it
	Check       *CrashCheck `json:"check,omitempty"`   // the health check that failed
	Usage       *CrashUsage `json:"usage,omitempty"`
}

// CrashUsage is what a process used until it exited. The memory, and the numbers of
// processes and open files, are from the last measurement before that.
type CrashUsage struct {
	CPUSeconds       float64   `json:"cpu_seconds"`
	ThrottledSeconds float64   `json:"throttled_seconds,omitempty"`
	MeasuredAt       time.Time `json:"measured_at,omitzero"`
	Anon             int64     `json:"anon"`   // bytes of memory that no file backs
	File             int64     `json:"file"`   // bytes of cached files
	Kernel           int64     `json:"kernel"` // bytes that the kernel used for it
	PIDs             int       `json:"pids"`   // processes and threads
	OpenFiles        int       `json:"open_files,omitempty"`
	OOMKills         int64     `json:"oom_kills,omitempty"`
}

// CrashCheck is the last result of a health check that failed.
type CrashCheck struct {
	Type     string `json:"type"`
	Endpoint string `json:"endpoint,omitempty"`
	Status   int    `json:"status,omitempty"` // of the response; 0: no response
}

// CrashLines is the position of a process's last lines in the app's log.
type CrashLines struct {
	Source string `json:"source"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
}

// Kill is the body of POST /dew/v1/processes/:guid/kill: send a signal to one process
// of an instance. Without a sidecar, the signal goes to the process itself.
type Kill struct {
	Index   int    `json:"index"`
	Sidecar string `json:"sidecar,omitempty"`
	Signal  string `json:"signal,omitempty"` // KILL, TERM, … without SIG
}

// Shutdown is the body of POST /dew/v1/shutdown. The daemon stops after it has
// responded. The apps keep running unless Apps is set.
type Shutdown struct {
	Apps bool `json:"apps"`
}

// CauseOutOfMemory is the cause of an exit after the kernel's out-of-memory killer.
const CauseOutOfMemory = "out_of_memory"

// ConsoleLink is the response of POST /dew/v1/console/link: a URL that opens the web
// console as the caller. It works once, until ExpiresAt.
type ConsoleLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// ConsoleLogin is the response of POST /console/login.
type ConsoleLogin struct {
	CSRFToken string `json:"csrf_token"` // for the header X-CSRF-Token of every request
}

// ConsoleInfo is the response of GET /dew/v1/console/session: the data that the page
// needs to start.
type ConsoleInfo struct {
	User  ConsoleUser `json:"user"`
	Admin bool        `json:"admin"` // can do everything
	// ReadsAll is true for administrators and global readers.
	ReadsAll  bool      `json:"reads_all"`
	SessionID string    `json:"session_id,omitempty"` // empty for requests with a token
	ExpiresAt time.Time `json:"expires_at,omitzero"`  // end of the session if it is not used
	Version   string    `json:"version"`
	API       string    `json:"api"`              // URL
	Router    string    `json:"router,omitempty"` // URL
	Domain    string    `json:"domain,omitempty"` // default domain of routes
	SSH       string    `json:"ssh,omitempty"`    // address; empty if SSH is disabled
}

// ConsoleUser is the user of a console session.
type ConsoleUser struct {
	GUID   string `json:"guid"`
	Name   string `json:"name"`
	Origin string `json:"origin,omitempty"`
}

// ConsoleSessions is the response of GET /dew/v1/console/sessions, last used first.
type ConsoleSessions struct {
	Resources []ConsoleSession `json:"resources"`
}

// ConsoleSession is a browser in which a user opened the web console.
type ConsoleSession struct {
	ID         string      `json:"id"`
	User       ConsoleUser `json:"user"`
	CreatedAt  time.Time   `json:"created_at"`
	LastUsedAt time.Time   `json:"last_used_at"` // accurate to a minute
	ExpiresAt  time.Time   `json:"expires_at"`
	UserAgent  string      `json:"user_agent"`
	Current    bool        `json:"current"` // the session of this request
}

// TerminalMessage is a text message of GET /dew/v1/apps/:guid/terminal. The client sends
// Resize; dewd sends Exit or Error before it closes the connection.
type TerminalMessage struct {
	Resize *TerminalSize `json:"resize,omitempty"`
	Exit   *TerminalExit `json:"exit,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// TerminalExit is the result of a shell.
type TerminalExit struct {
	Status int `json:"status"` // 128 plus the signal if a signal killed it
}
