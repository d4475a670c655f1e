package v3

// ManifestType is the content type of a manifest.
const ManifestType = "application/x-yaml"

// ManifestDiff is the response of POST /v3/spaces/:guid/manifest_diff: the changes that
// applying the manifest would make.
type ManifestDiff struct {
	Diff []Difference `json:"diff"`
}

// Difference is one change. Was is absent if a value is added, Value if one is removed.
type Difference struct {
	Op    string `json:"op"`   // add, replace or remove
	Path  string `json:"path"` // /applications/0/memory
	Was   any    `json:"was,omitempty"`
	Value any    `json:"value,omitempty"`
}
