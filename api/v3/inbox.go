package v3

import "time"

// Inbox is the answer of GET /dew/v1/inbox, newest first. Bodies are not in it.
type Inbox struct {
	Mails []Mail `json:"mails"`
	// Total is how many there are that the filter chooses; Mails are the newest.
	Total int `json:"total"`
}

// Mail is one mail in the inbox.
type Mail struct {
	Seq      uint64    `json:"seq"` // counts the mails that ever came
	ID       string    `json:"id"`  // of the message
	From     string    `json:"from"`
	To       string    `json:"to"`
	ReplyTo  string    `json:"reply_to,omitempty"`
	Subject  string    `json:"subject"`
	Client   string    `json:"client"`
	Kind     string    `json:"kind,omitempty"`
	User     string    `json:"user,omitempty"` // guid
	Received time.Time `json:"received,omitzero"`
	Sent     time.Time `json:"sent"`
	Size     int       `json:"size"` // of the bodies
	Text     string    `json:"text,omitempty"`
	HTML     string    `json:"html,omitempty"`
}

// InboxLink is the answer of POST /dew/v1/inbox/link: a page for a browser. It
// opens once.
type InboxLink struct {
	URL string `json:"url"`
}

// CrashMails is the answer of /dew/v1/apps/:guid/crash-mails: whether those who
// work on an app get a mail when it crashes.
type CrashMails struct {
	Enabled bool `json:"enabled"`
}
