package v3

// IsolationSegment is a group of machines.
type IsolationSegment struct {
	GUID      string   `json:"guid"`
	CreatedAt Time     `json:"created_at"`
	UpdatedAt Time     `json:"updated_at"`
	Name      string   `json:"name"`
	Metadata  Metadata `json:"metadata"`
	Links     Links    `json:"links"`
}

// ChangeIsolationSegment is the body of POST and PATCH of isolation segments.
type ChangeIsolationSegment struct {
	Name     string    `json:"name,omitempty"`
	Metadata *Metadata `json:"metadata,omitempty"`
}
