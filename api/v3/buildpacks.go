package v3

// BuildpackReady is the state of a buildpack that can stage.
const BuildpackReady = "READY"

// Buildpack is a way to stage.
type Buildpack struct {
	GUID      string   `json:"guid"`
	CreatedAt Time     `json:"created_at"`
	UpdatedAt Time     `json:"updated_at"`
	Name      string   `json:"name"`
	Stack     *string  `json:"stack"` // null: any
	State     string   `json:"state"`
	Filename  *string  `json:"filename"` // null: built in
	Position  int      `json:"position"`
	Enabled   bool     `json:"enabled"`
	Locked    bool     `json:"locked"`
	Lifecycle string   `json:"lifecycle"`
	Metadata  Metadata `json:"metadata"`
	Links     Links    `json:"links"`
}
