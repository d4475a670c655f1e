package v3

import (
	"encoding/json"
	"time"
)

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

// QueuedMail is a mail in the queue, or one that failed within the last day.
type QueuedMail struct {
	ID          string    `json:"id"`
	To          string    `json:"to"`             // address; empty: looked up at the delivery
	User        string    `json:"user,omitempty"` // guid
	Client      string    `json:"client"`
	Kind        string    `json:"kind,omitempty"`
	Subject     string    `json:"subject"`
	State       string    `json:"state"`    // queued, retrying, failed or undeliverable
	Attempts    int       `json:"attempts"` // that failed
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	LastAnswer  string    `json:"last_answer,omitempty"` // of the mail server, or another reason
	ReceivedAt  time.Time `json:"received_at,omitzero"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// QueuedMails is the response of GET /dew/v1/mails: failed mails, newest first, then
// waiting ones in the order of their next attempt.
type QueuedMails struct {
	Mails []QueuedMail `json:"mails"`
	Total int          `json:"total"` // number of mails that match, with those that are not shown
}

// RetryMails is the body of POST /dew/v1/mails/retry. Without IDs, all mails in the
// state are meant.
type RetryMails struct {
	IDs   []string `json:"ids,omitempty"`
	State string   `json:"state,omitempty"` // waiting or failed; empty: both
}

// RetriedMails is the response of POST /dew/v1/mails/retry.
type RetriedMails struct {
	Retried int `json:"retried"`
}

// MailQueue is the state of the queue of mails, in the status.
type MailQueue struct {
	Queued       int       `json:"queued"`   // not tried yet
	Retrying     int       `json:"retrying"` // waiting for another attempt
	Failed       int       `json:"failed"`   // within the last day
	StalledSince time.Time `json:"stalled_since,omitzero"`
}

// PreviewTemplate is the body of POST /dew/v1/mail-templates/preview. It names a template,
// or has one that is not stored. Without both, the template of the kind is used.
type PreviewTemplate struct {
	Template string          `json:"template,omitempty"` // id
	Inline   *InlineTemplate `json:"inline,omitempty"`
	Client   string          `json:"client,omitempty"`
	Kind     string          `json:"kind,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"` // object with values of placeholders
}

// InlineTemplate is a template in a request.
type InlineTemplate struct {
	Name    string `json:"name,omitempty"`
	Subject string `json:"subject,omitempty"`
	Text    string `json:"text,omitempty"`
	HTML    string `json:"html,omitempty"`
}

// PreviewedMail is the response of POST /dew/v1/mail-templates/preview.
type PreviewedMail struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	HTML    string `json:"html"`
}
