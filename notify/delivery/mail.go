package delivery

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
)

// Mail is one mail to one person, ready to be sent. Its fields are not encoded; the
// sender encodes them.
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
	Received time.Time `json:"received,omitzero"` // time of the request
	Sent     time.Time `json:"sent"`
	// Unsubscribe is the link that unsubscribes the recipient; empty: none.
	Unsubscribe string `json:"unsubscribe,omitempty"`

	// Handover is called while the mail is sent. It can be nil.
	Handover Handover `json:"-"`
}

// Handover gets to know when a mail is handed over to a mail server.
type Handover interface {
	// BeforeData is called when the server has accepted the recipient, before it gets
	// the content: from now on it can accept the mail. After an error, the mail is not
	// sent.
	BeforeData() error
}

// withDefaults sets the fields of a mail that come from its message.
func (m Mail) withDefaults(msg Message, n Notice, from string) Mail {
	m.ID, m.User, m.Client, m.Kind, m.Received = msg.ID, msg.User, n.Client, n.Kind, n.Received
	m.From, m.To = cmp.Or(m.From, from), cmp.Or(m.To, msg.Email)
	m.Sent = time.Now().UTC()
	return m
}

// WriteTo writes the encoded mail.
func (m Mail) WriteTo(w io.Writer) (int64, error) {
	msg, err := m.Encode()
	if err != nil {
		return 0, err
	}
	return msg.WriteTo(w)
}

// The headers that identify the origin of a mail.
const (
	headerClient   = gomail.Header("X-CF-Client-ID")
	headerID       = gomail.Header("X-CF-Notification-ID")
	headerSent     = gomail.Header("X-CF-Notification-Timestamp")
	headerReceived = gomail.Header("X-CF-Notification-Request-Received")
)

// Encode returns the encoded message of a mail. An invalid address is ErrUndeliverable.
func (m Mail) Encode() (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithCharset(gomail.CharsetUTF8), gomail.WithEncoding(gomail.EncodingQP), gomail.WithNoDefaultUserAgent())
	if err := msg.From(m.From); err != nil {
		return nil, fmt.Errorf("cannot send a mail from %q: %w", m.From, err)
	}
	to, err := Address(m.To)
	if err != nil {
		return nil, err
	}
	if err := msg.To(to); err != nil {
		return nil, fmt.Errorf("cannot send a mail to %q: %w", m.To, ErrUndeliverable)
	}
	// An invalid reply address is left out.
	if reply, err := mail.ParseAddress(m.ReplyTo); err == nil {
		msg.SetGenHeader(gomail.Header(gomail.HeaderReplyTo), replyText(reply))
	}
	msg.Subject(headerText(m.Subject))
	msg.SetGenHeader(headerClient, headerText(m.Client))
	msg.SetGenHeader(headerID, headerText(m.ID))
	msg.SetGenHeader(headerSent, m.Sent.Format(time.RFC3339Nano))
	msg.SetGenHeader(headerReceived, m.Received.UTC().Format(time.RFC3339Nano))
	if m.Unsubscribe != "" { // RFC 2369 and RFC 8058
		msg.SetGenHeader(gomail.HeaderListUnsubscribe, "<"+headerText(m.Unsubscribe)+">")
		msg.SetGenHeader(gomail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	msg.SetDateWithValue(m.Sent)
	msg.SetMessageIDWithValue(m.messageID())
	m.body(msg)
	return msg, nil
}

func (m Mail) body(msg *gomail.Msg) {
	switch {
	case m.HTML == "":
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	case m.Text == "":
		msg.SetBodyString(gomail.TypeTextHTML, m.HTML)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
		msg.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
	}
}

// replyText returns the value of Reply-To. A bare address has no brackets, as in the
// mails of the original service.
func replyText(a *mail.Address) string {
	if bare := strings.Trim((&mail.Address{Address: a.Address}).String(), "<>"); a.Name == "" {
		return bare
	}
	return a.String()
}

// messageID stays the same when a mail is sent again, so that mail programs can
// recognize the duplicate.
func (m Mail) messageID() string {
	domain := "dew.invalid"
	if from, err := mail.ParseAddress(m.From); err == nil {
		domain = from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	}
	return m.ID + "@" + domain
}

// Address returns the address of a recipient without a name.
func Address(to string) (string, error) {
	a, err := mail.ParseAddress(to)
	if err != nil {
		return "", fmt.Errorf("%q is not a valid email address: %w", to, ErrUndeliverable)
	}
	return a.Address, nil
}

// headerText prevents that a header value starts another header or looks like an
// encoded word.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if !strings.Contains(s, "=?") {
		return s // the library encodes non-ASCII characters
	}
	const maxBytes = 42 // bytes in one encoded word of at most 75 characters
	var words []string
	for word := ""; s != ""; {
		_, n := utf8.DecodeRuneInString(s)
		word, s = word+s[:n], s[n:]
		if len(word) > maxBytes-utf8.UTFMax || s == "" {
			words = append(words, "=?UTF-8?b?"+base64.StdEncoding.EncodeToString([]byte(word))+"?=")
			word = ""
		}
	}
	return strings.Join(words, " ")
}
