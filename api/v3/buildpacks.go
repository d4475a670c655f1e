package v3

// BuildpackReady is the state of a buildpack that can stage.
const BuildpackReady = "READY"

// Buildpack turns an app's files into a droplet.
type Buildpack struct {
	GUID      string   `json:"guid"`
	CreatedAt Time     `json:"created_at"`
	UpdatedAt Time     `json:"updated_at"`
	Name      string   `json:"name"`
	Stack     *string  `json:"stack"` // null for any
	State     string   `json:"state"`
	Filename  *string  `json:"filename"` // null for a built-in one
	Position  int      `json:"position"`
	Enabled   bool     `json:"enabled"`
	Locked    bool     `json:"locked"`
	Lifecycle string   `json:"lifecycle"`
	Metadata  Metadata `json:"metadata"`
	Links     Links    `json:"links"`
}
