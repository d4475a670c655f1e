package app

import "time"

// Segment is a group of machines that orgs may be entitled to and spaces assigned
// to. There is one machine, so it is only remembered.
type Segment struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Orgs      []string  `json:"orgs,omitempty"` // guids of those that may use it
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SharedSegment is the segment of all that is assigned to none. It is built in.
func SharedSegment() Segment {
	return Segment{GUID: "933b4c58-120b-499a-b85d-4b6fc9e2903b", Name: "shared"}
}
