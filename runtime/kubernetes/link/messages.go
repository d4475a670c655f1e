package link

import (
	"time"
)

// The paths of requests to an agent. An agent passes those of one process on to its
// wrapper.
const (
	PathAttach  = "/attach"  // stream: output, exits
	PathReady   = "/ready"   // answers when every wrapper is connected
	PathStart   = "/start"   // Start
	PathSignal  = "/signal"  // Signal
	PathUsage   = "/usage"   // answers []Usage
	PathTree    = "/tree"    // body: tar of the droplet
	PathFiles   = "/files"   // answers with a tar of the files of the app
	PathDial    = "/dial"    // stream: the connection
	PathSession = "/session" // stream: frames
	PathQuit    = "/quit"    // ends all processes and the wrappers
	PathEvents  = "/events"  // to a wrapper only; stream: frames
	PathSync    = "/sync"    // to a wrapper only: answers Synced
	PathPack    = "/pack"    // packing.Packing: answers with frames, KindStdout and KindPacked
	PathLost    = "/lost"    // Kubernetes says that a process has exited: answers when its output is known
)

// Start starts the processes of a Pod.
type Start struct {
	Processes []Process         `json:"processes"`
	Files     map[string]string `json:"files,omitempty"` // the service bindings, by path below FilesDir
	FilesDir  string            `json:"files_dir,omitempty"`
}

// Process is one process of a Pod.
type Process struct {
	Exec string   `json:"exec"`
	Args []string `json:"args"` // arguments of dew-init
	Dir  string   `json:"dir"`
	Env  []string `json:"env"`
}

// Exit is the exit of a process.
type Exit struct {
	Exec  string    `json:"exec"`
	Code  int       `json:"code"` // 128+signal when killed
	At    time.Time `json:"at"`
	Usage Usage     `json:"usage"` // at the exit
	// Terminated says that Kubernetes had told the container to stop before.
	Terminated bool `json:"terminated,omitempty"`
}

// Synced has the exit of a process, if it has exited by now.
type Synced struct {
	Exit *Exit `json:"exit,omitempty"`
}

// Finished says that a process and its children have exited, and how much they printed.
type Finished struct {
	Exec string   `json:"exec"`
	Size [2]int64 `json:"size"` // of the capture files
}

// Signal is a signal to every process of some execs.
type Signal struct {
	Number int      `json:"number"`
	Execs  []string `json:"execs"`
}

// Usage is what the processes of one container have used. Numbers that the kernel does
// not have are 0.
type Usage struct {
	Exec      string        `json:"exec"`
	Memory    int64         `json:"memory"` // without the page cache that the kernel can reclaim
	Cache     int64         `json:"cache"`
	Anon      int64         `json:"anon"`
	File      int64         `json:"file"`
	Kernel    int64         `json:"kernel"`
	Peak      int64         `json:"peak"`
	OOMKills  int64         `json:"oom_kills"`
	CPU       time.Duration `json:"cpu"`
	Periods   int64         `json:"periods"`
	Throttled int64         `json:"throttled"`
	Waited    time.Duration `json:"waited"`
	PIDs      int           `json:"pids"`
	Files     int           `json:"files"`
	Disk      int64         `json:"disk"`   // of the home and temporary folders, if requested
	Inodes    int64         `json:"inodes"` // their files and folders
	Paused    bool          `json:"paused"`
	Ports     []Port        `json:"ports"`
}

// Port is a TCP port on which a process listens.
type Port struct {
	Port     int  `json:"port"`
	Loopback bool `json:"loopback"`
}

// Session is a program that a user runs next to a process.
type Session struct {
	Args    []string `json:"args"`    // arguments of dew-init
	Profile []string `json:"profile"` // the same if profile scripts must be sourced
	Env     []string `json:"env"`     // overrides the variables of the process
	TTY     bool     `json:"tty"`
	Size    Size     `json:"size"`

	// The settings that the process was started with. They are used if the process does
	// not run, or if its own values cannot be read.
	Dir   string   `json:"dir"`
	Given []string `json:"given"`
}

// Size is the size of a terminal.
type Size struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// Packed is the end of an answer to PathPack.
type Packed struct {
	Refused string `json:"refused,omitempty"` // why the files cannot be packed
	Error   string `json:"error,omitempty"`   // why they could not be read
}

// SessionResult is the result of a session. Output can follow it.
type SessionResult struct {
	Code int `json:"code"`
}

// Attach is the first message on the stream of PathAttach.
type Attach struct {
	Offsets [][2]int64 `json:"offsets"` // by process: how much of its output is stored
}
