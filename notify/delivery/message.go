package delivery

import (
	"slices"
	"time"
)

// Status is how far a message has come.
type Status string

// The states of a message. Queued and Retry wait for the Courier, the others are
// the end.
const (
	Queued        Status = "queued"
	Retry         Status = "retry" // an attempt failed, another follows
	Delivered     Status = "delivered"
	Failed        Status = "failed"        // given up
	Undeliverable Status = "undeliverable" // nobody wants it, or there is no address
)

// Ended tells whether nothing more will happen.
func (s Status) Ended() bool { return s != Queued && s != Retry }

// Dialects of the service, as a Notice remembers them.
const (
	V1 = 1
	V2 = 2
)

// Notice is what one request wants to be told, to however many recipients. It is
// kept once, and dropped a day after the last of its messages has ended.
type Notice struct {
	ID      string `json:"id"` // set by Enqueue
	Version int    `json:"version"`

	Client            string `json:"client"` // id of who sends
	SourceDescription string `json:"source_description,omitempty"`
	Kind              string `json:"kind,omitempty"` // id; of a campaign: of its type
	KindDescription   string `json:"kind_description,omitempty"`

	Subject string `json:"subject"`
	Text    string `json:"text,omitempty"`
	HTML    HTML   `json:"html,omitzero"`
	ReplyTo string `json:"reply_to,omitempty"`

	Space       Place  `json:"space,omitzero"`
	Org         Place  `json:"org,omitzero"`
	Role        string `json:"role,omitempty"`  // as the request names it: OrgManager
	Scope       string `json:"scope,omitempty"` // whose holders are told
	Endorsement string `json:"endorsement,omitempty"`

	Template string    `json:"template,omitempty"` // id; empty: the kind's, the client's or the default one
	Campaign string    `json:"campaign,omitempty"` // id; several notices may be of one campaign
	Received time.Time `json:"received,omitzero"`  // when the request came
	Request  string    `json:"request,omitempty"`  // its id
}

// HTML is a sender's document in the parts that templates name.
type HTML struct {
	Doctype        string `json:"doctype,omitempty"`
	Head           string `json:"head,omitempty"`
	BodyAttributes string `json:"body_attributes,omitempty"`
	BodyContent    string `json:"body_content,omitempty"`
}

// Message is a Notice on its way to one recipient.
type Message struct {
	ID       string    `json:"id"`
	Notice   string    `json:"notice"`          // id
	User     string    `json:"user,omitempty"`  // guid; empty: only an address is known
	Email    string    `json:"email,omitempty"` // empty: asked for at delivery
	Status   Status    `json:"status"`
	Attempts int       `json:"attempts,omitempty"` // that failed
	Due      time.Time `json:"due,omitzero"`       // of the next attempt
	Problem  string    `json:"problem,omitempty"`  // of the last attempt
	Updated  time.Time `json:"updated"`
}

// Recipient is what a request answers with: the guid, or the bare address.
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
	Ended   time.Time `json:"ended,omitzero"` // zero: some still wait
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
	case Undeliverable:
		t.Undeliverable += n
	}
}

// Waiting is how many messages have not ended.
func (t *Tally) Waiting() int { return t.Queued + t.Retry }

// The way back to a mail server that does not take a message: after 1, 2, 4, ...
// minutes, up to the tenth time.
const (
	firstRetry = time.Minute
	maxRetries = 10
)

// retryAfter is how long to wait after the nth failure; false: no more.
func retryAfter(n int) (time.Duration, bool) {
	if n < 1 || n > maxRetries {
		return 0, false
	}
	return firstRetry << (n - 1), true
}

// unique leaves out whoever is there already: by guid, or else by address.
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
