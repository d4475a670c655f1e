package v3

// Deployment replaces the instances of an app in steps.
type Deployment struct {
	GUID            string                  `json:"guid"`
	CreatedAt       Time                    `json:"created_at"`
	UpdatedAt       Time                    `json:"updated_at"`
	Status          DeploymentStatus        `json:"status"`
	Strategy        string                  `json:"strategy"`
	Options         DeploymentOptions       `json:"options"`
	Droplet         DropletGUID             `json:"droplet"`
	PreviousDroplet DropletGUID             `json:"previous_droplet"`
	NewProcesses    []NewProcess            `json:"new_processes"`
	Revision        *DeploymentRevision     `json:"revision"` // null if revisions are disabled
	Relationships   DeploymentRelationships `json:"relationships"`
	Metadata        Metadata                `json:"metadata"`
	Links           Links                   `json:"links"`
}

// The strategies of deployments.
const (
	StrategyRolling = "rolling"
	StrategyCanary  = "canary"
)

// The values in a deployment's status.
const (
	DeploymentActive     = "ACTIVE"
	DeploymentFinalized  = "FINALIZED"
	DeploymentDeploying  = "DEPLOYING"
	DeploymentPaused     = "PAUSED"
	DeploymentDeployed   = "DEPLOYED"
	DeploymentCanceling  = "CANCELING"
	DeploymentCanceled   = "CANCELED"
	DeploymentSuperseded = "SUPERSEDED"
)

// DropletGUID identifies a droplet. It is null if there was none.
type DropletGUID struct {
	GUID *string `json:"guid"`
}

// DeploymentStatus is the progress of a deployment.
type DeploymentStatus struct {
	Value   string            `json:"value"`
	Reason  string            `json:"reason"`
	Details DeploymentDetails `json:"details"`
	Canary  *CanaryStatus     `json:"canary,omitempty"`
}

// DeploymentDetails are the times of a deployment.
type DeploymentDetails struct {
	LastHealthy Time   `json:"last_successful_healthcheck"`
	LastChange  Time   `json:"last_status_change"`
	Error       string `json:"error,omitempty"`
}

// CanaryStatus is the progress of a canary deployment.
type CanaryStatus struct {
	Steps CanarySteps `json:"steps"`
}

// CanarySteps counts from 1.
type CanarySteps struct {
	Current int `json:"current"`
	Total   int `json:"total"`
}

// DeploymentOptions are the settings of a deployment. Null and absent are the same.
type DeploymentOptions struct {
	MaxInFlight  *Int           `json:"max_in_flight,omitempty"`
	WebInstances *Int           `json:"web_instances,omitempty"`
	MemoryInMB   *Int           `json:"memory_in_mb,omitempty"`
	DiskInMB     *Int           `json:"disk_in_mb,omitempty"`
	LogRateLimit *Int           `json:"log_rate_limit_in_bytes_per_second,omitempty"`
	Canary       *CanaryOptions `json:"canary,omitempty"`
}

// CanaryOptions define the steps after which a canary deployment pauses.
type CanaryOptions struct {
	Steps []CanaryStep `json:"steps,omitempty"`
}

// CanaryStep is one step of a canary deployment.
type CanaryStep struct {
	InstanceWeight *Int `json:"instance_weight"` // percentage of new instances
}

// NewProcess identifies the new instances of a process.
type NewProcess struct {
	GUID string `json:"guid"`
	Type string `json:"type"`
}

// DeploymentRevision identifies the deployed revision.
type DeploymentRevision struct {
	GUID    string `json:"guid"`
	Version *Int   `json:"version,omitempty"`
}

// DeploymentRelationships of a deployment.
type DeploymentRelationships struct {
	App ToOne `json:"app"`
}

// CreateDeployment is the body of POST /v3/deployments.
type CreateDeployment struct {
	Droplet       *GUID                   `json:"droplet,omitempty"`
	Revision      *DeploymentRevision     `json:"revision,omitempty"`
	Strategy      *string                 `json:"strategy,omitempty"`
	Options       *DeploymentOptions      `json:"options,omitempty" strict:"true"`
	Relationships DeploymentRelationships `json:"relationships"`
	Metadata      *Metadata               `json:"metadata,omitempty"`
}
