package v3

// FeatureFlag is a feature that administrators can enable or disable.
type FeatureFlag struct {
	Name      string  `json:"name"`
	Enabled   bool    `json:"enabled"`
	UpdatedAt *Time   `json:"updated_at"` // null if never changed
	Message   *string `json:"custom_error_message"`
	Links     Links   `json:"links"`
}

// UpdateFeatureFlag is the body of PATCH /v3/feature_flags/:name.
type UpdateFeatureFlag struct {
	Enabled *bool            `json:"enabled,omitempty"`
	Message Nullable[string] `json:"custom_error_message,omitzero"`
}
