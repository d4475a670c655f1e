package v3

// ManifestType is the content type of a manifest.
const ManifestType = "application/x-yaml"

// ManifestDiff is the answer of POST /v3/spaces/:guid/manifest_diff: what
// applying the manifest would change.
type ManifestDiff struct {
	Diff []Difference `json:"diff"`
}

// Difference is one change; Was is absent when something is added, Value when
// something is removed.
type Difference struct {
	Op    string `json:"op"`   // add, replace, remove
	Path  string `json:"path"` // /applications/0/memory
	Was   any    `json:"was,omitempty"`
	Value any    `json:"value,omitempty"`
}
