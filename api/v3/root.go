package v3

// Root is the document at /.
type Root struct {
	Links RootLinks `json:"links"`
}

// RootLinks are the addresses of the platform's services. A service that does not exist
// is null.
type RootLinks struct {
	Self              *Link     `json:"self"`
	CloudControllerV2 *Link     `json:"cloud_controller_v2"`
	CloudControllerV3 *RootLink `json:"cloud_controller_v3"`
	Login             *Link     `json:"login"`
	UAA               *Link     `json:"uaa"`
	Logging           *Link     `json:"logging"`
	LogCache          *Link     `json:"log_cache"`
	LogStream         *Link     `json:"log_stream"`
	AppSSH            *RootLink `json:"app_ssh"`
	Routing           *Link     `json:"routing"`
	NetworkPolicyV0   *Link     `json:"network_policy_v0"`
	NetworkPolicyV1   *Link     `json:"network_policy_v1"`
}

// RootLink is a link with its metadata for clients.
type RootLink struct {
	Href string   `json:"href"`
	Meta RootMeta `json:"meta"`
}

// RootMeta has the version of the API, or the fingerprint of the SSH server.
type RootMeta struct {
	Version            string `json:"version,omitempty"`
	HostKeyFingerprint string `json:"host_key_fingerprint,omitempty"`
	OAuthClient        string `json:"oauth_client,omitempty"`
}
