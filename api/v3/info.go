package v3

// Index is the response of GET /v3.
type Index struct {
	Links Links `json:"links"`
}

// Info is the response of GET /v3/info.
type Info struct {
	Build         string            `json:"build"`
	CLIVersion    CLIVersion        `json:"cli_version"`
	Custom        map[string]string `json:"custom"`
	Description   string            `json:"description"`
	Name          string            `json:"name"`
	Version       int               `json:"version"`
	BrokerVersion string            `json:"osbapi_version"`
	Links         Links             `json:"links"`
}

// CLIVersion says which client versions are supported. Empty means all.
type CLIVersion struct {
	Minimum     string `json:"minimum"`
	Recommended string `json:"recommended"`
}
