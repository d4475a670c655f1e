package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// MailFilter chooses mails of the inbox. Empty fields choose all.
type MailFilter struct {
	To      string // address, or guid of the user
	Kind    string
	Subject string // a part of it
	After   uint64 // only newer ones, by their seq
	Limit   int    // of a list; 0: as many as the daemon gives
}

func (f MailFilter) query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{"to": f.To, "kind": f.Kind, "subject": f.Subject} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if f.After > 0 {
		q.Set("after", strconv.FormatUint(f.After, 10))
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Inbox lists mails, newest first, without their bodies.
func (c *Client) Inbox(ctx context.Context, f MailFilter) (v3.Inbox, error) {
	var in v3.Inbox
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/inbox?"+f.query().Encode(), nil, &in)
	return in, err
}

// Mail reads one mail.
func (c *Client) Mail(ctx context.Context, id string) (v3.Mail, error) {
	var m v3.Mail
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/inbox/"+escape(id), nil, &m)
	return m, err
}

// mailWait is how long one request waits: less than a request may take.
const mailWait = 20 * time.Second

// WaitForMail returns the first mail that f chooses, whether it is there already
// or comes until ctx ends.
func (c *Client) WaitForMail(ctx context.Context, f MailFilter) (v3.Mail, error) {
	q := f.query()
	q.Set("timeout", mailWait.String())
	for {
		var in v3.Inbox
		if _, err := c.call(ctx, http.MethodGet, "/dew/v1/inbox/wait?"+q.Encode(), nil, &in); err != nil {
			return v3.Mail{}, err
		}
		if len(in.Mails) > 0 {
			return in.Mails[0], nil
		}
	}
}

// InboxLink makes a link to the inbox for a browser, which opens once.
func (c *Client) InboxLink(ctx context.Context) (string, error) {
	var l v3.InboxLink
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/inbox/link", nil, &l)
	return l.URL, err
}

// CrashMails tells whether crashes of an app are told by mail.
func (c *Client) CrashMails(ctx context.Context, app string) (bool, error) {
	var m v3.CrashMails
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/apps/"+escape(app)+"/crash-mails", nil, &m)
	return m.Enabled, err
}

// SetCrashMails switches the mails about crashes of an app.
func (c *Client) SetCrashMails(ctx context.Context, app string, enabled bool) error {
	_, err := c.call(ctx, http.MethodPut, "/dew/v1/apps/"+escape(app)+"/crash-mails", v3.CrashMails{Enabled: enabled}, nil)
	return err
}
