package app

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The strategies of deployments.
const (
	Rolling = "rolling"
	Canary  = "canary"
)

// DeploymentState is the state of a deployment.
type DeploymentState string

// The states of deployments.
const (
	Deploying DeploymentState = "DEPLOYING"
	Prepaused DeploymentState = "PREPAUSED" // a canary on its way to the next pause
	Paused    DeploymentState = "PAUSED"    // a canary that waits for a user to continue it
	Deployed  DeploymentState = "DEPLOYED"
	Canceling DeploymentState = "CANCELING"
	Canceled  DeploymentState = "CANCELED"
)

// The values and reasons of the status that clients see.
const (
	StatusActive     = "ACTIVE"
	StatusFinalized  = "FINALIZED"
	ReasonSuperseded = "SUPERSEDED"
)

// Deployment replaces the instances of an app's web process by those of a new
// generation, some at a time. Each step is a number of instances per generation, which
// is stored before it takes effect.
type Deployment struct {
	GUID            string          `json:"guid"`
	App             string          `json:"app"` // guid; its web process has the same
	Strategy        string          `json:"strategy"`
	State           DeploymentState `json:"state"`
	Superseded      bool            `json:"superseded,omitempty"` // another deployment started before it was finished
	Error           string          `json:"error,omitempty"`
	Generation      int             `json:"generation"`         // generation of the new instances
	Droplet         string          `json:"droplet"`            // guid
	PreviousDroplet string          `json:"previous_droplet"`   // guid
	Revision        string          `json:"revision,omitempty"` // guid
	RevisionVersion int             `json:"revision_version,omitempty"`

	Options DeploymentOptions `json:"options"`
	Step    int               `json:"step,omitempty"` // current step of a canary, from 1

	Original int `json:"original"` // instances before
	Target   int `json:"target"`   // instances that the request asked for

	// Instances is the desired number of the process's own generation: the new one,
	// or after a cancel the restored one. Others are the other generations, oldest first.
	Instances int     `json:"instances"`
	Others    []Share `json:"others,omitempty"`
	// Before is the desired state before a rollback. A cancel restores it.
	Before *Before `json:"before,omitempty"`

	Metadata  Metadata  `json:"metadata,omitzero"`
	HealthyAt time.Time `json:"healthy_at"` // when instances were last healthy
	ChangedAt time.Time `json:"changed_at"` // when the status last changed
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// DeploymentOptions are the options of a request. Nil keeps the present value.
type DeploymentOptions struct {
	MaxInFlight  int    `json:"max_in_flight"`
	WebInstances *int   `json:"web_instances,omitempty"`
	MemoryMB     *int   `json:"memory_mb,omitempty"`
	DiskMB       *int   `json:"disk_mb,omitempty"`
	LogRate      *int64 `json:"log_rate,omitempty"` // below 0: no limit
	Steps        []int  `json:"steps,omitempty"`    // instance weights of a canary, in percent
}

// Share is the number of instances of another generation than the process's own.
type Share struct {
	Generation int      `json:"generation"`
	Instances  int      `json:"instances"`
	Release    Release  `json:"release"`
	Current    []string `json:"current"`           // see Process.Current
	Dropped    bool     `json:"dropped,omitempty"` // no rollback restores it
}

// Before is the state before a rollback, without the droplet.
type Before struct {
	Env      map[string]string `json:"env,omitempty"`
	Command  string            `json:"command,omitempty"`
	Sidecars []Sidecar         `json:"sidecars,omitempty"`
}

// Active reports whether the deployment is not finished.
func (d Deployment) Active() bool { return d.State != Deployed && d.State != Canceled }

// Progressing reports whether the deployment is active and not being canceled.
func (d Deployment) Progressing() bool { return d.Active() && d.State != Canceling }

// Status returns the status that clients see.
func (d Deployment) Status() (value, reason string) {
	value, reason = StatusActive, string(d.State)
	switch {
	case d.Superseded:
		return StatusFinalized, ReasonSuperseded
	case !d.Active():
		value = StatusFinalized
	case d.State == Prepaused:
		reason = string(Deploying)
	}
	return value, reason
}

// Move sets the state, and ChangedAt if the status that clients see changes.
func (d *Deployment) Move(to DeploymentState) {
	value, reason := d.Status()
	d.State = to
	if v, why := d.Status(); v != value || why != reason {
		d.ChangedAt = Now()
	}
}

// Steps returns the number of steps of a canary deployment.
func (d Deployment) Steps() int { return max(len(d.Options.Steps), 1) }

// Plan is a desired number of instances: New of the new generation, of Total.
type Plan struct{ New, Total int }

// Plan returns the next goal for a process with the desired number of instances: the end
// of the deployment or its next pause. A canary has one instance more, so that the
// earlier instances can serve all requests alone.
func (d Deployment) Plan(instances int) Plan {
	if d.State != Prepaused && d.State != Paused {
		return Plan{New: instances, Total: instances}
	}
	if instances == d.Target { // no scaling since the deployment started
		instances = min(d.Target, d.Original)
	}
	if len(d.Options.Steps) == 0 {
		return Plan{New: 1, Total: instances + 1}
	}
	weight := d.Options.Steps[min(max(d.Step, 1), len(d.Options.Steps))-1]
	canary := max(int(math.Round(float64(instances)*float64(weight)/100)), 1)
	if weight == 100 {
		return Plan{New: canary, Total: canary}
	}
	return Plan{New: canary, Total: instances + 1}
}

// Counts returns the desired number of instances per generation of the web process.
func (d Deployment) Counts(p Process) map[int]int {
	out := map[int]int{p.Generation: d.Instances}
	for _, s := range d.Others {
		out[s.Generation] = s.Instances
	}
	return out
}

// GenerationGUID returns a guid for the instances of one generation of a process.
func GenerationGUID(process string, generation int) string {
	return process + "." + strconv.Itoa(generation)
}

// SplitGeneration is the inverse of GenerationGUID. It returns false for the plain guid
// of a process.
func SplitGeneration(guid string) (process string, generation int, ok bool) {
	process, text, found := strings.Cut(guid, ".")
	n, err := strconv.Atoi(text)
	if !found || err != nil || n < 0 || strconv.Itoa(n) != text {
		return guid, 0, false
	}
	return process, n, true
}

// Refusal returns the error for an action that the state does not allow.
func (d Deployment) Refusal(action string) error {
	value, reason := d.Status()
	return &Refused{fmt.Sprintf("Cannot %s a deployment with status: %s and reason: %s", action, value, reason)}
}

// Refused says why the present state does not allow a change.
type Refused struct{ Reason string }

func (r *Refused) Error() string { return r.Reason }

// NewDeployment is a request for a deployment.
type NewDeployment struct {
	App      string // guid
	Droplet  string // guid (empty: the app's current one, or the revision's)
	Revision string // guid of the revision to roll back to (empty: none)
	Strategy string
	Options  DeploymentOptions
	Metadata Metadata
}

// Wanted is the desired number of instances of a process, per generation.
type Wanted struct {
	Process    Process
	Counts     map[int]int // by generation
	Deployment *Deployment // deployment that is moving the process; nil: none
}

// Unscale undoes the changes that the deployment itself made to the web process.
func (d Deployment) Unscale(p *Process, to Release) {
	if p.Instances == d.Target {
		p.Instances = d.Original
	}
	if d.Options.MemoryMB != nil {
		p.MemoryMB = to.MemoryMB
	}
	if d.Options.DiskMB != nil {
		p.DiskMB = to.DiskMB
	}
	if d.Options.LogRate != nil {
		p.LogRate = to.LogRate
	}
	if d.Before != nil {
		p.Command = d.Before.Command
	}
}

// Release is what the instances of a process were started from at the last start,
// restart or deployment: the desired state at that time. It never changes.
type Release struct {
	Revision    string            `json:"revision,omitempty"` // guid; empty: revisions were disabled
	Droplet     string            `json:"droplet,omitempty"`  // guid
	Stack       string            `json:"stack,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Command     string            `json:"command,omitempty"`
	MemoryMB    int               `json:"memory_mb"`
	DiskMB      int               `json:"disk_mb"`
	LogRate     *int64            `json:"log_rate,omitempty"`
	HealthCheck HealthCheck       `json:"health_check"`
	Readiness   HealthCheck       `json:"readiness"`
	Ports       []int             `json:"ports,omitempty"`
	Sidecars    []Sidecar         `json:"sidecars,omitempty"` // sidecars of the process type
	Version     string            `json:"version"`
}

// Apply returns an app and its process with their values in the release.
func (rel Release) Apply(a App, p Process) (App, Process) {
	a.Droplet, a.Stack, a.Env = rel.Droplet, rel.Stack, maps.Clone(rel.Env)
	p.Command, p.MemoryMB, p.DiskMB, p.LogRate = rel.Command, rel.MemoryMB, rel.DiskMB, rel.LogRate
	p.HealthCheck, p.Readiness, p.Ports, p.Version = rel.HealthCheck, rel.Readiness, slices.Clone(rel.Ports), rel.Version
	return a, p
}

// Revision is the state of an app when it was started or deployed. A deployment can
// roll back to it.
type Revision struct {
	GUID        string            `json:"guid"`
	App         string            `json:"app"` // guid
	Version     int               `json:"version"`
	Droplet     string            `json:"droplet"` // guid
	Env         map[string]string `json:"env,omitempty"`
	Commands    map[string]string `json:"commands"` // by process type; empty: the droplet's command
	Sidecars    []Sidecar         `json:"sidecars,omitempty"`
	Description string            `json:"description"`
	Metadata    Metadata          `json:"metadata,omitzero"`
	CreatedAt   time.Time         `json:"created_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
}
