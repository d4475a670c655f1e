package v3

// FeatureSSH is the feature of an app, or of a space, that lets people in.
const FeatureSSH = "ssh"

// FeatureRevisions is the feature of an app that keeps what it was, to be gone back to.
const FeatureRevisions = "revisions"

// AppFeature is something that can be switched for an app.
type AppFeature struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

// UpdateAppFeature is the body of PATCH /v3/apps/:guid/features/:name.
type UpdateAppFeature struct {
	Enabled *bool `json:"enabled"`
}

// AppFeatures is the answer of GET /v3/apps/:guid/features.
type AppFeatures struct {
	Resources  []AppFeature `json:"resources"`
	Pagination Pagination   `json:"pagination"`
}

// SSHEnabled is the answer of GET /v3/apps/:guid/ssh_enabled.
type SSHEnabled struct {
	Enabled bool   `json:"enabled"`
	Reason  string `json:"reason"` // why not
}

// SSHCode is the answer of POST /dew/v1/ssh-code: a one-time password for the ssh
// door, and how to find and recognise that door.
type SSHCode struct {
	Code        string `json:"code"`
	Address     string `json:"address"`     // host:port
	Fingerprint string `json:"fingerprint"` // SHA-256 of the host key, base64 without padding
}
