package v3

// FeatureSSH is the feature of an app or a space that allows SSH to instances.
const FeatureSSH = "ssh"

// FeatureRevisions is the feature of an app that stores revisions for rollbacks.
const FeatureRevisions = "revisions"

// AppFeature is a feature of an app that can be enabled or disabled.
type AppFeature struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

// UpdateAppFeature is the body of PATCH /v3/apps/:guid/features/:name.
type UpdateAppFeature struct {
	Enabled *bool `json:"enabled"`
}

// AppFeatures is the response of GET /v3/apps/:guid/features.
type AppFeatures struct {
	Resources  []AppFeature `json:"resources"`
	Pagination Pagination   `json:"pagination"`
}

// SSHEnabled is the response of GET /v3/apps/:guid/ssh_enabled.
type SSHEnabled struct {
	Enabled bool   `json:"enabled"`
	Reason  string `json:"reason"` // why not
}

// SSHCode is the response of POST /dew/v1/ssh-code: a one-time password for the SSH
// server, and the server's address and fingerprint.
type SSHCode struct {
	Code        string `json:"code"`
	Address     string `json:"address"`     // host:port
	Fingerprint string `json:"fingerprint"` // SHA-256 of the host key, base64 without padding
}
