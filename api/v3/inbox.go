package v3

import "time"

// Inbox is the response of GET /dew/v1/inbox, newest first. It has no bodies.
type Inbox struct {
	Mails []Mail `json:"mails"`
	// Total is how many mails match the filter. Mails are the newest of them.
	Total int `json:"total"`
}

// Mail is one mail in the inbox.
type Mail struct {
	Seq      uint64    `json:"seq"` // sequence number of the mail
	ID       string    `json:"id"`  // ID of the message
	From     string    `json:"from"`
	To       string    `json:"to"`
	ReplyTo  string    `json:"reply_to,omitempty"`
	Subject  string    `json:"subject"`
	Client   string    `json:"client"`
	Kind     string    `json:"kind,omitempty"`
	User     string    `json:"user,omitempty"` // guid
	Received time.Time `json:"received,omitzero"`
	Sent     time.Time `json:"sent"`
	Size     int       `json:"size"` // size of the bodies
	Text     string    `json:"text,omitempty"`
	HTML     string    `json:"html,omitempty"`
}

// InboxLink is the response of POST /dew/v1/inbox/link: a page for a browser. The link
// works once.
type InboxLink struct {
	URL string `json:"url"`
}

// CrashMails is the response of /dew/v1/apps/:guid/crash-mails: whether the developers
// of an app get a mail when it crashes.
type CrashMails struct {
	Enabled bool `json:"enabled"`
}
