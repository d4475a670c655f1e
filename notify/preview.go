package notify

import (
	"cmp"
	"errors"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/render"
	"github.com/dewrun/dew/store"
)

// Preview is a request to render a template without sending a mail.
type Preview struct {
	ID           string    // of a template; empty: that of the kind, or the default one
	Template     *Template // a template that is not stored; it is used instead of ID
	Client, Kind string    // of the notification; empty: an example
	Data         []byte    // JSON object with values of placeholders; empty: examples
}

// IsInvalid reports whether an error is the caller's, and not the server's.
func IsInvalid(err error) bool {
	_, ok := errors.AsType[*problem](err)
	return ok
}

// Preview renders a template with example data, or with data of the caller.
func (s *composer) Preview(v Preview) (mail delivery.Mail, err error) {
	p, n := render.Sample(), delivery.Notice{Version: delivery.V1, Client: v.Client, Kind: v.Kind, Template: v.ID}
	var t Template
	err = s.c.DB.View(func(tx *store.Tx) error {
		if v.Kind != "" {
			k, err := s.buckets.kinds.With(tx).Get(keyOf(v.Client, v.Kind))
			if err := notFoundError(err, "Notification", v.Client+"/"+v.Kind); err != nil {
				return err
			}
			c, err := ignoreNotFound(s.buckets.clients.With(tx).Get(keyOf(v.Client)))
			if err != nil {
				return err
			}
			p.ClientID, p.KindDescription, p.SourceDescription = v.Client, cmp.Or(k.Description, k.ID), cmp.Or(c.Name, v.Client)
		}
		if v.ID != "" { // templateFor would use the default one instead
			t, err = s.template(s.buckets.templates.With(tx), v.ID)
		} else {
			t, err = s.templateFor(tx, n)
		}
		return err
	})
	if err != nil {
		return mail, err
	}
	if v.Template != nil {
		t = *v.Template
		t.Subject = cmp.Or(t.Subject, defaultSubject)
		if err := t.check(); err != nil {
			return mail, err
		}
	}
	if len(v.Data) > 0 {
		if p, err = p.WithData(v.Data); err != nil {
			return mail, invalid("%s", err)
		}
	}
	mail = delivery.Mail{From: p.From, To: p.To, ReplyTo: p.ReplyTo}
	if err := renderMail(&mail, t, p); err != nil {
		return mail, invalid("The template cannot be rendered: %s", err)
	}
	return mail, nil
}
