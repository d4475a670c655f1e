package v3

// DropletStaged is the state of a droplet that can run.
const DropletStaged = "STAGED"

// Droplet is the result of a build.
type Droplet struct {
	GUID              string               `json:"guid"`
	CreatedAt         Time                 `json:"created_at"`
	UpdatedAt         Time                 `json:"updated_at"`
	State             string               `json:"state"`
	Error             *string              `json:"error"`
	Lifecycle         Lifecycle            `json:"lifecycle"`
	ExecutionMetadata string               `json:"execution_metadata"`
	ProcessTypes      map[string]string    `json:"process_types"`
	Checksum          *Checksum            `json:"checksum"` // identifies the image, not the bytes of the download
	Buildpacks        []DropletBuildpack   `json:"buildpacks"`
	Stack             string               `json:"stack"`
	Image             *string              `json:"image"`
	Relationships     DropletRelationships `json:"relationships"`
	Metadata          Metadata             `json:"metadata"`
	Links             Links                `json:"links"`
}

// DropletBuildpack is a buildpack that the build used.
type DropletBuildpack struct {
	Name          string `json:"name"`
	DetectOutput  string `json:"detect_output"`
	BuildpackName string `json:"buildpack_name"`
	Version       string `json:"version"`
}

// DropletRelationships of a droplet.
type DropletRelationships struct {
	App ToOne `json:"app"`
}

// CopyDroplet is the body of POST /v3/droplets?source_guid=: the app that gets the
// copy.
type CopyDroplet struct {
	Relationships DropletRelationships `json:"relationships"`
}
