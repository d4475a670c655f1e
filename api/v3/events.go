package v3

// Event is an audit event.
type Event struct {
	GUID         string         `json:"guid"`
	CreatedAt    Time           `json:"created_at"`
	UpdatedAt    Time           `json:"updated_at"`
	Type         string         `json:"type"`
	Actor        Party          `json:"actor"`
	Target       Party          `json:"target"`
	Data         map[string]any `json:"data"`
	Space        *GUID          `json:"space"`
	Organization *GUID          `json:"organization"`
	Links        Links          `json:"links"`
}

// Party is the actor or the target of an event.
type Party struct {
	GUID string `json:"guid"`
	Type string `json:"type"`
	Name string `json:"name"`
}
