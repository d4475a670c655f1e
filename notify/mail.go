package notify

import "time"

// Mail is one mail to one person, ready to be sent. Nothing in it has been
// encoded; whoever sends it does so.
type Mail struct {
	ID       string    `json:"id"` // of the message
	From     string    `json:"from"`
	To       string    `json:"to"`
	ReplyTo  string    `json:"reply_to,omitempty"`
	Subject  string    `json:"subject"`
	Text     string    `json:"text,omitempty"` // empty: only HTML
	HTML     string    `json:"html,omitempty"` // the whole document; empty: only text
	Client   string    `json:"client"`
	Kind     string    `json:"kind,omitempty"`
	User     string    `json:"user,omitempty"`    // guid
	Received time.Time `json:"received,omitzero"` // when the request came
	Sent     time.Time `json:"sent"`
}
