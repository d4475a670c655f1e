package v3

// Env is the response of GET /v3/apps/:guid/env: every variable that an instance
// started now would get, grouped by origin.
type Env struct {
	Staging     map[string]string `json:"staging_env_json"`
	Running     map[string]string `json:"running_env_json"`
	Environment map[string]string `json:"environment_variables"`
	System      map[string]any    `json:"system_env_json"`      // VCAP_SERVICES
	Application map[string]any    `json:"application_env_json"` // VCAP_APPLICATION
}

// EnvVars is the response of /v3/apps/:guid/environment_variables.
type EnvVars struct {
	Var   map[string]string `json:"var"`
	Links Links             `json:"links,omitempty"`
}

// UpdateEnvVars is the body of PATCH there. Null unsets a variable.
type UpdateEnvVars struct {
	Var map[string]*string `json:"var"`
}
