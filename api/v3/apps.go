package v3

// The desired states of an app.
const (
	AppStarted = "STARTED"
	AppStopped = "STOPPED"
)

// App is an app.
type App struct {
	GUID          string           `json:"guid"`
	CreatedAt     Time             `json:"created_at"`
	UpdatedAt     Time             `json:"updated_at"`
	Name          string           `json:"name"`
	State         string           `json:"state"`
	Lifecycle     Lifecycle        `json:"lifecycle"`
	Relationships AppRelationships `json:"relationships"`
	Metadata      Metadata         `json:"metadata"`
	Links         Links            `json:"links"`
	Included      map[string]any   `json:"included,omitempty"` // only in responses for a single app
}

// AppRelationships of an app.
type AppRelationships struct {
	Space          ToOne `json:"space"`
	CurrentDroplet ToOne `json:"current_droplet"`
}

// CreateApp is the body of POST /v3/apps.
type CreateApp struct {
	Name          string                 `json:"name"`
	Env           map[string]string      `json:"environment_variables,omitempty"`
	Lifecycle     *Lifecycle             `json:"lifecycle,omitempty"`
	Relationships CreateAppRelationships `json:"relationships"`
	Metadata      *Metadata              `json:"metadata,omitempty"`
}

// CreateAppRelationships of an app to create.
type CreateAppRelationships struct {
	Space ToOne `json:"space"`
}

// UpdateApp is the body of PATCH /v3/apps/:guid. Missing keys do not change.
type UpdateApp struct {
	Name      *string    `json:"name,omitempty"`
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
	Metadata  *Metadata  `json:"metadata,omitempty"`
}

// Permissions is the response of GET /v3/apps/:guid/permissions.
type Permissions struct {
	ReadBasic     bool `json:"read_basic_data"`
	ReadSensitive bool `json:"read_sensitive_data"`
}

// CurrentDroplet is the body and the response of
// /v3/apps/:guid/relationships/current_droplet.
type CurrentDroplet struct {
	Data  *GUID `json:"data"`
	Links Links `json:"links,omitempty"`
}
