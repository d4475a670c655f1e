package v3

// The states of a build.
const (
	BuildStaging = "STAGING"
	BuildStaged  = "STAGED"
	BuildFailed  = "FAILED"
)

// Build is one staging run.
type Build struct {
	GUID            string             `json:"guid"`
	CreatedAt       Time               `json:"created_at"`
	UpdatedAt       Time               `json:"updated_at"`
	CreatedBy       CreatedBy          `json:"created_by"`
	State           string             `json:"state"`
	StagingMemoryMB int                `json:"staging_memory_in_mb"`
	StagingDiskMB   int                `json:"staging_disk_in_mb"`
	Error           *string            `json:"error"`
	Lifecycle       Lifecycle          `json:"lifecycle"`
	Package         GUID               `json:"package"`
	Droplet         *GUID              `json:"droplet"`
	Relationships   BuildRelationships `json:"relationships"`
	Metadata        Metadata           `json:"metadata"`
	Links           Links              `json:"links"`
}

// CreatedBy is the user who requested the build.
type CreatedBy struct {
	GUID  string `json:"guid"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// BuildRelationships of a build.
type BuildRelationships struct {
	App ToOne `json:"app"`
}

// CreateBuild is the body of POST /v3/builds. A build of a package that was staged
// before is a restage and stages it again. Cloud Foundry clients have no other way to
// request that.
type CreateBuild struct {
	Package   GUID       `json:"package"`
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
	Metadata  *Metadata  `json:"metadata,omitempty"`
}
