package app

// NewDeployment is what somebody wants deployed.
type NewDeployment struct {
	App      string // guid
	Droplet  string // guid; empty: the app's current one, or the revision's
	Revision string // guid of the one to go back to; empty: none
	Strategy string
	Options  DeploymentOptions
	Metadata Metadata
}

// Wanted is how many instances of each generation a process should have.
type Wanted struct {
	Process    Process
	Counts     map[int]int // by generation
	Deployment *Deployment // that is moving the process; nil: none
}
