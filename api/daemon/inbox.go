package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	notify "github.com/dewrun/dew/notify/inbox"
)

// inboxHandlers answers requests about mails.
type inboxHandlers struct{ *Handlers }

func (h inboxHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /dew/v1/inbox", Needs: access.Administer, // only administrators read mails
			Handler: h.listMails, Shape: rest.Returns[v3.Inbox](200).Query("to", "kind", "subject", "after", "limit"),
		},
		{
			Pattern: "GET /dew/v1/inbox/wait", Needs: access.Administer,
			Handler: h.waitForMail, Shape: rest.Returns[v3.Inbox](200).Query("to", "kind", "subject", "after", "timeout"),
		},
		{Pattern: "GET /dew/v1/inbox/{id}", Needs: access.Administer, Handler: h.getMail, Shape: rest.Returns[v3.Mail](200)},
		{Pattern: "POST /dew/v1/inbox/link", Needs: access.Administer, Handler: h.createInboxLink, Shape: rest.Returns[v3.InboxLink](201)},
		{Pattern: "GET /dew/v1/apps/{guid}/crash-mails", Needs: access.Read, Resource: access.App, Handler: h.getCrashMails, Shape: rest.Returns[v3.CrashMails](200)},
		{
			Pattern: "PUT /dew/v1/apps/{guid}/crash-mails", Needs: access.Develop, Resource: access.App,
			Handler: h.updateCrashMails, Shape: rest.Returns[v3.CrashMails](200).Reads(rest.JSON[v3.CrashMails]()),
		},
	}
}

// Mails is the part of the built-in inbox that handlers use.
type Mails struct {
	Inbox *notify.Inbox
	// Link returns the URL of a page for a browser. It works once.
	Link func() (string, error)
}

const (
	// maxMailPage is the maximum number of mails in one list.
	maxMailPage = 20000
	// maxMailWait limits the time of one waiting request; clients repeat it.
	maxMailWait = time.Minute
)

// inbox returns the inbox, or an error that says why there is none.
func (h inboxHandlers) inbox() (*notify.Inbox, error) {
	if h.Mails == nil {
		return nil, rest.Unprocessable("dewd has no inbox: it sends mails to the mail server that is set with --smtp.")
	}
	return h.Mails.Inbox, nil
}

func (h inboxHandlers) listMails(r *http.Request) (any, error) {
	inbox, err := h.inbox()
	if err != nil {
		return nil, err
	}
	f, err := mailFilter(r)
	if err != nil {
		return nil, err
	}
	limit := maxMailPage
	if v := r.FormValue("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxMailPage {
			return nil, &app.Invalid{Key: "limit", Message: fmt.Sprintf("must be a number from 1 to %d, not %q", maxMailPage, v)}
		}
	}
	found, err := inbox.List(f, 0)
	if err != nil {
		return nil, err
	}
	out := v3.Inbox{Mails: []v3.Mail{}, Total: len(found)}
	for _, k := range found[:min(limit, len(found))] {
		out.Mails = append(out.Mails, presentMail(k))
	}
	return out, nil
}

func mailFilter(r *http.Request) (f notify.Filter, err error) {
	f = notify.Filter{To: r.FormValue("to"), Kind: r.FormValue("kind"), Subject: r.FormValue("subject")}
	if v := r.FormValue("after"); v != "" {
		if f.After, err = strconv.ParseUint(v, 10, 64); err != nil {
			return f, &app.Invalid{Key: "after", Message: fmt.Sprintf("must be the seq of a mail, not %q", v)}
		}
	}
	return f, nil
}

func (h inboxHandlers) getMail(r *http.Request) (any, error) {
	inbox, err := h.inbox()
	if err != nil {
		return nil, err
	}
	k, err := inbox.Get(r.PathValue("id"))
	if errors.Is(err, notify.ErrNoMail) {
		return nil, rest.NotFound("Mail")
	}
	if err != nil {
		return nil, err
	}
	return presentMail(k), nil
}

// waitForMail responds with the first mail that matches the filter, in full. If none
// arrives in time, it responds with an empty list.
func (h inboxHandlers) waitForMail(r *http.Request) (any, error) {
	inbox, err := h.inbox()
	if err != nil {
		return nil, err
	}
	f, err := mailFilter(r)
	if err != nil {
		return nil, err
	}
	limit := maxMailWait
	if v := r.FormValue("timeout"); v != "" {
		if limit, err = time.ParseDuration(v); err != nil || limit < 0 {
			return nil, &app.Invalid{Key: "timeout", Message: fmt.Sprintf("must be a duration such as 30s, not %q", v)}
		}
	}
	k, err := inbox.Wait(r.Context(), f, min(limit, maxMailWait))
	if errors.Is(err, notify.ErrNoMail) {
		return v3.Inbox{Mails: []v3.Mail{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return v3.Inbox{Mails: []v3.Mail{presentMail(k)}, Total: 1}, nil
}

func (h inboxHandlers) createInboxLink(*http.Request) (any, error) {
	if _, err := h.inbox(); err != nil {
		return nil, err
	}
	link, err := h.Mails.Link()
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: v3.InboxLink{URL: link}}, nil
}

func (h inboxHandlers) getCrashMails(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	out := v3.CrashMails{}
	if h.CrashMails != nil {
		out.Enabled, err = h.CrashMails.Enabled(a.GUID)
	}
	return out, err
}

func (h inboxHandlers) updateCrashMails(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CrashMails](r)
	if err != nil {
		return nil, err
	}
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	if h.CrashMails == nil {
		return nil, rest.Unprocessable("dewd does not send mails about crashes.")
	}
	if err := h.CrashMails.Set(a.GUID, body.Enabled); err != nil {
		return nil, err
	}
	return body, nil
}

func presentMail(k notify.StoredMail) v3.Mail {
	return v3.Mail{
		Seq: k.Seq, ID: k.ID, From: k.From, To: k.To, ReplyTo: k.ReplyTo, Subject: k.Subject, Client: k.Client, Kind: k.Kind,
		User: k.User, Received: k.Received, Sent: k.Sent, Size: k.Size, Text: k.Text, HTML: k.HTML,
	}
}

// notifyPath is the path prefix of the notification service.
const notifyPath = "/notify"

// IsNotify reports whether the notification service answers a request.
func (h *Handlers) IsNotify(r *http.Request) bool {
	return h.Notify != nil && (r.URL.Path == notifyPath || strings.HasPrefix(r.URL.Path, notifyPath+"/"))
}

// IsPreferences reports whether a request is for a page where users unsubscribe. Such
// requests can come from any origin: they carry a token, and the service decides which
// pages can read the response.
func IsPreferences(r *http.Request) bool {
	const path = notifyPath + "/user_preferences"
	return r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/")
}

// Notifications passes a request to the notification service, which has its own paths
// and its own permission checks.
func (h *Handlers) Notifications(w http.ResponseWriter, r *http.Request) {
	const id = "X-Vcap-Request-Id"
	if r.Header.Get(id) == "" {
		r = r.Clone(r.Context())
		r.Header.Set(id, rest.RequestID(r.Context()))
	}
	http.StripPrefix(notifyPath, h.Notify).ServeHTTP(w, r)
}
