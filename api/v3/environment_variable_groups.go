package v3

// EnvVarGroup are the environment variables that all apps have in common.
type EnvVarGroup struct {
	UpdatedAt *Time             `json:"updated_at"`
	Name      string            `json:"name"`
	Var       map[string]string `json:"var"`
	Links     Links             `json:"links"`
}
