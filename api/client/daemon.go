package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// Root reads the root document, which has the addresses of all APIs.
func (c Daemon) Root(ctx context.Context) (v3.Root, error) {
	var r v3.Root
	_, err := c.call(ctx, http.MethodGet, "/", nil, &r)
	return r, err
}

// FeatureFlags lists the feature flags.
func (c Daemon) FeatureFlags(ctx context.Context) ([]v3.FeatureFlag, error) {
	return list[v3.FeatureFlag](ctx, c.transport, "/v3/feature_flags", nil)
}

// SetFeatureFlag enables or disables a feature flag.
func (c Daemon) SetFeatureFlag(ctx context.Context, name string, enabled bool) (v3.FeatureFlag, error) {
	var f v3.FeatureFlag
	_, err := c.call(ctx, http.MethodPatch, "/v3/feature_flags/"+escape(name), v3.UpdateFeatureFlag{Enabled: &enabled}, &f)
	return f, err
}

// Status reads the status of the daemon.
func (c Daemon) Status(ctx context.Context) (v3.Status, error) {
	var s v3.Status
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/status", nil, &s)
	return s, err
}

// StatusWithNotices returns the status with notices, which the daemon gives only once.
func (c Daemon) StatusWithNotices(ctx context.Context) (v3.Status, error) {
	var s v3.Status
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/status?notices=true", nil, &s)
	return s, err
}

// Shutdown stops the daemon.
func (c Daemon) Shutdown(ctx context.Context, s v3.Shutdown) error {
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/shutdown", s, nil)
	return err
}

// AdminToken returns an administrator's token. It works only over the socket.
func (c Daemon) AdminToken(ctx context.Context) (string, error) {
	var t v3.LocalToken
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/token", nil, &t)
	return t.Token, err
}

// Credentials reads the addresses and credentials that other programs need to act as
// the administrator.
func (c Daemon) Credentials(ctx context.Context) (v3.Credentials, error) {
	var cr v3.Credentials
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/credentials", nil, &cr)
	return cr, err
}

// MailFilter selects mails of the inbox. Empty fields match all mails.
type MailFilter struct {
	To      string // address, or guid of the user
	Kind    string
	Subject string // substring of the subject
	After   uint64 // only mails with a higher seq
	Limit   int    // maximum number of mails in a list, 0 for the daemon's default
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
func (c Daemon) Inbox(ctx context.Context, f MailFilter) (v3.Inbox, error) {
	var in v3.Inbox
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/inbox?"+f.query().Encode(), nil, &in)
	return in, err
}

// Mail reads one mail.
func (c Daemon) Mail(ctx context.Context, id string) (v3.Mail, error) {
	var m v3.Mail
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/inbox/"+escape(id), nil, &m)
	return m, err
}

// mailWait is how long one request waits. It is less than the timeout of a request.
const mailWait = 20 * time.Second

// WaitForMail returns the first mail that matches f. If there is none yet, it waits for
// one until ctx is done.
func (c Daemon) WaitForMail(ctx context.Context, f MailFilter) (v3.Mail, error) {
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

// InboxLink creates a link to the inbox for a browser. The link works once.
func (c Daemon) InboxLink(ctx context.Context) (string, error) {
	var l v3.InboxLink
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/inbox/link", nil, &l)
	return l.URL, err
}

// QueuedMails lists mails of the queue. State is waiting, failed or empty for both.
func (c Daemon) QueuedMails(ctx context.Context, state string, limit int) (v3.QueuedMails, error) {
	q := url.Values{}
	if state != "" {
		q.Set("state", state)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var out v3.QueuedMails
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/mails?"+q.Encode(), nil, &out)
	return out, err
}

// RetryMails queues failed mails again and tries waiting ones now. It returns their
// number.
func (c Daemon) RetryMails(ctx context.Context, r v3.RetryMails) (int, error) {
	var out v3.RetriedMails
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/mails/retry", r, &out)
	return out.Retried, err
}

// PreviewTemplate renders a template of mails and sends nothing.
func (c Daemon) PreviewTemplate(ctx context.Context, p v3.PreviewTemplate) (v3.PreviewedMail, error) {
	var out v3.PreviewedMail
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/mail-templates/preview", p, &out)
	return out, err
}

// ConsoleLink creates a link that opens the web console as the caller. It works once and
// for 60 s.
func (c Daemon) ConsoleLink(ctx context.Context) (v3.ConsoleLink, error) {
	var l v3.ConsoleLink
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/console/link", nil, &l)
	return l, err
}

// ConsoleSessions returns the caller's sessions of the web console, or those of all
// users for administrators.
func (c Daemon) ConsoleSessions(ctx context.Context) ([]v3.ConsoleSession, error) {
	var l v3.ConsoleSessions
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/console/sessions", nil, &l)
	return l.Resources, err
}

// EndConsoleSession ends a session of the web console.
func (c Daemon) EndConsoleSession(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodDelete, "/dew/v1/console/sessions/"+escape(id), nil, nil)
	return err
}

// Labels reads the labels of the resource at a path.
func (c Daemon) Labels(ctx context.Context, path string) (map[string]*string, error) {
	var out struct {
		Metadata v3.Metadata `json:"metadata"`
	}
	_, err := c.call(ctx, http.MethodGet, path, nil, &out)
	return out.Metadata.Labels, err
}

// SetLabels changes labels of the resource at a path. A null value removes a label. It
// waits until the change is done.
func (c Daemon) SetLabels(ctx context.Context, path string, labels map[string]*string) error {
	body := struct {
		Metadata struct {
			Labels map[string]*string `json:"labels"`
		} `json:"metadata"`
	}{}
	body.Metadata.Labels = labels
	h, err := c.call(ctx, http.MethodPatch, path, body, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// EnvVarGroup reads the variables that all instances ("running") or builds ("staging")
// have.
func (c Daemon) EnvVarGroup(ctx context.Context, name string) (v3.EnvVarGroup, error) {
	var out v3.EnvVarGroup
	_, err := c.call(ctx, http.MethodGet, "/v3/environment_variable_groups/"+escape(name), nil, &out)
	return out, err
}

// UpdateEnvVarGroup changes such variables. A null value removes a variable.
func (c Daemon) UpdateEnvVarGroup(ctx context.Context, name string, vars map[string]*string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/environment_variable_groups/"+escape(name), map[string]any{"var": vars}, nil)
	return err
}

// AppUsage lists the usage events of apps, newest first. If since is not zero, older
// events are left out.
func (c Daemon) AppUsage(ctx context.Context, since time.Time) ([]v3.AppUsageEvent, error) {
	return list[v3.AppUsageEvent](ctx, c.transport, "/v3/app_usage_events", newestSince(since))
}

// ServiceUsage lists the usage events of services in the same way.
func (c Daemon) ServiceUsage(ctx context.Context, since time.Time) ([]v3.ServiceUsageEvent, error) {
	return list[v3.ServiceUsageEvent](ctx, c.transport, "/v3/service_usage_events", newestSince(since))
}

func newestSince(t time.Time) url.Values {
	q := url.Values{"order_by": {"-created_at"}}
	if !t.IsZero() {
		q.Set("created_ats[gte]", t.UTC().Format(time.RFC3339))
	}
	return q
}
