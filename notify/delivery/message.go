package delivery

import (
	"slices"
	"time"
)

// Status is the delivery state of a message.
type Status string

// The states of a message. Queued and Retry wait for the Courier; the others are final.
const (
	Queued        Status = "queued"
	Retry         Status = "retry" // an attempt failed, another follows
	Delivered     Status = "delivered"
	Failed        Status = "failed"        // no more attempts
	Undeliverable Status = "undeliverable" // the recipient has no address
	Unsubscribed  Status = "unsubscribed"  // the recipient unsubscribed (older records: Undeliverable)
)

// Ended reports whether the state is final.
func (s Status) Ended() bool { return s != Queued && s != Retry }

// The API versions of a Notice.
const (
	V1 = 1
	V2 = 2
)

// Notice is the content of one request, for any number of recipients. It is stored
// once, and dropped a day after the last of its messages has ended.
type Notice struct {
	ID      string `json:"id"` // set by Enqueue
	Version int    `json:"version"`

	Client            string `json:"client"` // id of the sending client
	SourceDescription string `json:"source_description,omitempty"`
	Kind              string `json:"kind,omitempty"` // id of the kind, or of the type for a campaign
	KindDescription   string `json:"kind_description,omitempty"`

	Subject string `json:"subject"`
	Text    string `json:"text,omitempty"`
	HTML    HTML   `json:"html,omitzero"`
	ReplyTo string `json:"reply_to,omitempty"`

	Space       Place  `json:"space,omitzero"`
	Org         Place  `json:"org,omitzero"`
	Role        string `json:"role,omitempty"`  // as the request names it: OrgManager
	Scope       string `json:"scope,omitempty"` // recipients are the users with this scope
	Endorsement string `json:"endorsement,omitempty"`

	Template string    `json:"template,omitempty"` // id (empty: the template of the kind, the client, or the default one)
	Campaign string    `json:"campaign,omitempty"` // id (a campaign can have several notices)
	Received time.Time `json:"received,omitzero"`  // time of the request
	Request  string    `json:"request,omitempty"`  // id of the request
}

// HTML has the parts of a sender's document that templates can use.
type HTML struct {
	Doctype        string `json:"doctype,omitempty"`
	Head           string `json:"head,omitempty"`
	BodyAttributes string `json:"body_attributes,omitempty"`
	BodyContent    string `json:"body_content,omitempty"`
}

// Message is a Notice for one recipient.
type Message struct {
	ID       string    `json:"id"`
	Notice   string    `json:"notice"`          // id
	User     string    `json:"user,omitempty"`  // guid; empty: only an address is known
	Email    string    `json:"email,omitempty"` // empty: looked up at delivery
	Status   Status    `json:"status"`
	Attempts int       `json:"attempts,omitempty"` // number of failed attempts
	Due      time.Time `json:"due,omitzero"`       // time of the next attempt
	Problem  string    `json:"problem,omitempty"`  // error of the last attempt
	Updated  time.Time `json:"updated"`
}

// Recipient returns the recipient for a response: the guid, or the bare address.
func (m Message) Recipient() string {
	if m.User != "" {
		return m.User
	}
	return m.Email
}

// Tally counts the messages of a campaign.
type Tally struct {
	Total         int `json:"total"`
	Queued        int `json:"queued"`
	Retry         int `json:"retry"`
	Delivered     int `json:"delivered"`
	Failed        int `json:"failed"`
	Undeliverable int `json:"undeliverable"`

	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"` // zero: some are not delivered yet
}

// add counts n messages in a state.
func (t *Tally) add(s Status, n int) {
	switch s {
	case Queued:
		t.Queued += n
	case Retry:
		t.Retry += n
	case Delivered:
		t.Delivered += n
	case Failed:
		t.Failed += n
	case Undeliverable, Unsubscribed:
		t.Undeliverable += n
	}
}

// Waiting returns the number of messages that have not ended.
func (t *Tally) Waiting() int { return t.Queued + t.Retry }

// Retries when a mail server does not accept a message: after 1, 2, 4, ... minutes, at
// most ten times. A permanent refusal is not retried.
const (
	firstRetry = time.Minute
	maxRetries = 10
	// postponeFor is the time until a message is tried that could not be tried now,
	// because many mails to the same domain wait for a slow server.
	postponeFor = time.Minute
)

// retryAfter returns how long to wait after the nth failure. It returns false if there
// is no further attempt.
func retryAfter(n int, first time.Duration) (time.Duration, bool) {
	if n < 1 || n > maxRetries {
		return 0, false
	}
	return first << (n - 1), true
}

// unique removes duplicates, by guid or otherwise by address.
func unique(ps []Person) []Person {
	seen := make(map[string]bool, len(ps))
	return slices.DeleteFunc(slices.Clone(ps), func(p Person) bool {
		key := "user " + p.GUID
		if p.GUID == "" {
			key = "mail " + p.Email
		}
		was := seen[key]
		seen[key] = true
		return was
	})
}
