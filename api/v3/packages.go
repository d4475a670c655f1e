package v3

import "encoding/json"

// The states of a package.
const (
	PackageAwaitingUpload   = "AWAITING_UPLOAD"
	PackageProcessingUpload = "PROCESSING_UPLOAD"
	PackageReady            = "READY"
	PackageFailed           = "FAILED"
	PackageExpired          = "EXPIRED"
)

// PackageBits is the type of a package of pushed files.
const PackageBits = "bits"

// PackageDocker is the type of a package that names an image.
const PackageDocker = "docker"

// Package holds an app's files as they were pushed.
type Package struct {
	GUID          string               `json:"guid"`
	CreatedAt     Time                 `json:"created_at"`
	UpdatedAt     Time                 `json:"updated_at"`
	Type          string               `json:"type"`
	State         string               `json:"state"`
	Data          PackageData          `json:"data"`
	Relationships PackageRelationships `json:"relationships"`
	Metadata      Metadata             `json:"metadata"`
	Links         Links                `json:"links"`
}

// PackageData describes the files.
type PackageData struct {
	Error    *string   `json:"error"`
	Checksum *Checksum `json:"checksum"` // identifies the files, not the bytes of the download; null before the upload

	// Only for PackageDocker.
	Image    string `json:"image,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // hidden
}

// PackageRelationships of a package.
type PackageRelationships struct {
	App ToOne `json:"app"`
}

// CreatePackage is the body of POST /v3/packages.
type CreatePackage struct {
	Type          string               `json:"type"`
	Relationships PackageRelationships `json:"relationships"`
	Data          json.RawMessage      `json:"data,omitempty"` // nothing for bits, DockerData for docker
	Metadata      *Metadata            `json:"metadata,omitempty"`
}

// DockerData names an image and the credentials to pull it.
type DockerData struct {
	Image    string `json:"image"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// ResourceMatches is the body and the response of POST /v3/resource_matches: files that
// the client has, and those of them that the server already has.
type ResourceMatches struct {
	Resources []Resource `json:"resources"`
}

// Resource identifies one file by its content. The upload's field "resources" is a JSON
// array of these.
type Resource struct {
	Path     string   `json:"path"`
	Mode     string   `json:"mode"`     // octal: "644"
	Checksum Checksum `json:"checksum"` // sha1
	Size     int64    `json:"size_in_bytes"`
}

// MaxResources is the maximum number of resources in one request.
const MaxResources = 5000

// The parts of the multipart body of POST /v3/packages/:guid/upload.
const (
	UploadResources = "resources" // JSON array of Resource; first
	UploadBits      = "bits"      // file package.zip, absent if all files matched
)

// CopyPackage is the body of POST /v3/packages?source_guid=: the app that gets the
// copy.
type CopyPackage struct {
	Relationships PackageRelationships `json:"relationships"`
}
