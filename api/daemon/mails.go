package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/delivery"
)

// mailHandlers answers requests about the queue of mails.
type mailHandlers struct{ *Handlers }

func (h mailHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /dew/v1/mails", Needs: access.Administer,
			Handler: h.listQueue, Shape: rest.Returns[v3.QueuedMails](200).Query("state", "limit"),
		},
		{
			Pattern: "POST /dew/v1/mails/retry", Needs: access.Administer,
			Handler: h.retryMails, Shape: rest.Returns[v3.RetriedMails](200).Reads(rest.JSON[v3.RetryMails]()),
		},
		{
			Pattern: "POST /dew/v1/mail-templates/preview", Needs: access.Administer,
			Handler: h.previewTemplate, Shape: rest.Returns[v3.PreviewedMail](200).Reads(rest.JSON[v3.PreviewTemplate]()),
		},
	}
}

// MailQueue is the queue of mails that are delivered.
type MailQueue struct {
	*delivery.Queue
	// StalledSince returns since when the queue stands still; zero: it does not.
	StalledSince func() time.Time
}

// status returns the state of the queue, or nil if there is none.
func (q *MailQueue) status() (*v3.MailQueue, error) {
	if q == nil {
		return nil, nil
	}
	queued, retrying, err := q.Lengths()
	if err != nil {
		return nil, err
	}
	failed, err := q.Failed()
	if err != nil {
		return nil, err
	}
	return &v3.MailQueue{Queued: queued, Retrying: retrying, Failed: failed, StalledSince: q.StalledSince()}, nil
}

// errNoQueue is the response of a daemon that delivers no mails.
var errNoQueue = rest.Unprocessable("dewd has no queue of mails.")

// selection parses the state of a request.
func selection(state string) (s delivery.Selection, err error) {
	switch state {
	case "":
		return delivery.Selection{Waiting: true, Failed: true}, nil
	case "waiting":
		return delivery.Selection{Waiting: true}, nil
	case "failed":
		return delivery.Selection{Failed: true}, nil
	}
	return s, &app.Invalid{Key: "state", Message: fmt.Sprintf("must be waiting or failed, not %q", state)}
}

func (h mailHandlers) listQueue(r *http.Request) (any, error) {
	if h.Queue == nil {
		return nil, errNoQueue
	}
	s, err := selection(r.FormValue("state"))
	if err != nil {
		return nil, err
	}
	limit := maxMailPage
	if v := r.FormValue("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxMailPage {
			return nil, &app.Invalid{Key: "limit", Message: fmt.Sprintf("must be a number from 1 to %d, not %q", maxMailPage, v)}
		}
	}
	ms, total, err := h.Queue.List(s, limit)
	if err != nil {
		return nil, err
	}
	out := v3.QueuedMails{Mails: []v3.QueuedMail{}, Total: total}
	for _, m := range ms {
		out.Mails = append(out.Mails, presentQueued(m))
	}
	return out, nil
}

func presentQueued(m delivery.Listed) v3.QueuedMail {
	out := v3.QueuedMail{
		ID: m.ID, To: m.Email, User: m.User, Client: m.Notice.Client, Kind: m.Notice.Kind, Subject: m.Notice.Subject, State: string(m.Status),
		Attempts: m.Attempts, LastAnswer: m.Problem, ReceivedAt: m.Notice.Received, UpdatedAt: m.Updated,
	}
	if m.Status == delivery.Retry {
		out.State = "retrying" // as in GET /notify/messages/:id
	}
	if !m.Status.Ended() {
		out.NextAttempt = m.Due
	}
	return out
}

// maxRetryIDs is the maximum number of ids in one request.
const maxRetryIDs = 1000

// retryMails makes mails due now: those in the body, or all in a state.
func (h mailHandlers) retryMails(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.RetryMails](r)
	if err != nil {
		return nil, err
	}
	if h.Queue == nil {
		return nil, errNoQueue
	}
	s, err := selection(body.State)
	switch {
	case err != nil:
		return nil, err
	case len(body.IDs) > 0 && body.State != "":
		return nil, &app.Invalid{Key: "state", Message: "cannot be used with ids"}
	case len(body.IDs) > maxRetryIDs:
		return nil, &app.Invalid{Key: "ids", Message: fmt.Sprintf("must have at most %d ids", maxRetryIDs)}
	}
	var n int
	if len(body.IDs) > 0 {
		n, err = h.Queue.RetryNow(body.IDs)
	} else {
		n, err = h.Queue.RetryAll(s)
	}
	if errors.Is(err, delivery.ErrNoMessage) || errors.Is(err, delivery.ErrSettled) {
		return nil, rest.Unprocessable("Nothing was retried: %s.", err)
	}
	if err != nil {
		return nil, err
	}
	h.Platform.Log.Info("an administrator retries mails", "messages", n)
	return v3.RetriedMails{Retried: n}, nil
}

// previewTemplate renders a template and sends nothing.
func (h mailHandlers) previewTemplate(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.PreviewTemplate](r)
	if err != nil {
		return nil, err
	}
	switch {
	case h.Preview == nil:
		return nil, rest.Unprocessable("dewd has no notification service.")
	case body.Template != "" && body.Inline != nil:
		return nil, &app.Invalid{Key: "inline", Message: "cannot be used with template"}
	case (body.Client == "") != (body.Kind == ""):
		return nil, &app.Invalid{Key: "kind", Message: "needs client, and client needs kind"}
	}
	p := notify.Preview{ID: body.Template, Client: body.Client, Kind: body.Kind, Data: body.Data}
	if body.Inline != nil {
		p.Template = &notify.Template{Name: body.Inline.Name, Subject: body.Inline.Subject, Text: body.Inline.Text, HTML: body.Inline.HTML}
	}
	m, err := h.Preview(p)
	if notify.IsInvalid(err) {
		return nil, rest.Unprocessable("%s", err)
	}
	if err != nil {
		return nil, err
	}
	return v3.PreviewedMail{From: m.From, To: m.To, Subject: m.Subject, Text: m.Text, HTML: m.HTML}, nil
}
