package notify

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5" //nolint:gosec // the form of the id is given: see unsubscribeID
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/plaintext"
	"github.com/dewrun/dew/notify/render"
	"github.com/dewrun/dew/store"
)

// Compose renders the mail of a message. It returns an error if the recipient
// unsubscribed or has no address. Critical notifications ignore unsubscriptions.
func (s *composer) Compose(_ context.Context, m delivery.Message, n delivery.Notice) (mail delivery.Mail, err error) {
	var t Template
	var link string
	err = s.c.DB.View(func(tx *store.Tx) error {
		if err := s.checkSubscribed(tx, m, n); err != nil {
			return err
		}
		if link, err = s.unsubscribeURL(tx, m, n); err != nil {
			return err
		}
		t, err = s.templateFor(tx, n)
		return err
	})
	if err != nil {
		return mail, err
	}
	if !strings.Contains(m.Email, "@") {
		return mail, delivery.ErrUndeliverable
	}
	mail = delivery.Mail{
		ID: m.ID, From: s.c.From, To: m.Email, ReplyTo: n.ReplyTo, Client: n.Client, Kind: n.Kind, User: m.User,
		Received: n.Received, Sent: time.Now(), Unsubscribe: link,
	}
	p, err := s.placeholders(m, n)
	if err != nil {
		return mail, err
	}
	p.UnsubscribeURL = link
	if err := renderMail(&mail, t, p); err != nil {
		s.log.Warn("cannot render a template; using the default template", "template", t.ID, "message", m.ID, "err", err)
		return mail, renderMail(&mail, fallback(n), p)
	}
	return mail, nil
}

// checkSubscribed returns ErrUnsubscribed if a user unsubscribed from the notification.
// It uses the current setting of whether a kind is critical.
func (s *composer) checkSubscribed(tx *store.Tx, m delivery.Message, n delivery.Notice) error {
	if n.Version == delivery.V2 {
		return s.checkSubscribedV2(tx, m, n)
	}
	k, err := ignoreNotFound(s.buckets.kinds.With(tx).Get(keyOf(n.Client, n.Kind)))
	if err != nil {
		return fmt.Errorf("cannot read notification %s of client %s: %w", n.Kind, n.Client, err)
	}
	if k.Critical || m.User == "" {
		return nil
	}
	onlyCritical, err := s.wantsOnlyCritical(tx, m.User)
	if err != nil {
		return err
	}
	unsubscribed, err := s.hasUnsubscribed(tx, unsubscription{m.User, n.Client, n.Kind})
	if err != nil {
		return err
	}
	if onlyCritical || unsubscribed {
		return delivery.ErrUnsubscribed
	}
	return nil
}

// templateFor returns the template of a notice: its own, the kind's, the client's, or
// the default one. The default one also replaces a deleted template.
func (s *composer) templateFor(tx *store.Tx, n delivery.Notice) (Template, error) {
	if n.Version == delivery.V2 {
		return s.templateForV2(tx, n)
	}
	k, err := ignoreNotFound(s.buckets.kinds.With(tx).Get(keyOf(n.Client, n.Kind)))
	if err != nil {
		return Template{}, fmt.Errorf("cannot read notification %s of client %s: %w", n.Kind, n.Client, err)
	}
	c, err := ignoreNotFound(s.buckets.clients.With(tx).Get(keyOf(n.Client)))
	if err != nil {
		return Template{}, fmt.Errorf("cannot read client %s: %w", n.Client, err)
	}
	bucket := s.buckets.templates.With(tx)
	t, err := s.template(bucket, cmp.Or(n.Template, k.Template, c.Template, defaultTemplate))
	if _, gone := errors.AsType[*problem](err); gone {
		return s.template(bucket, defaultTemplate)
	}
	return t, err
}

// fallback returns a template that never fails.
func fallback(n delivery.Notice) Template {
	if n.Version == delivery.V2 {
		return builtIn2
	}
	return builtIn
}

// placeholders returns the values of the placeholders in a template.
func (s *composer) placeholders(m delivery.Message, n delivery.Notice) (render.Placeholders, error) {
	p := render.Placeholders{
		From: s.c.From, ReplyTo: n.ReplyTo, To: m.Email, Subject: n.Subject, Text: n.Text, HTML: n.HTML.BodyContent, HTMLComponents: n.HTML,
		KindDescription: cmp.Or(n.KindDescription, n.Kind), SourceDescription: cmp.Or(n.SourceDescription, n.Client),
		UserGUID: m.User, ClientID: n.Client, MessageID: m.ID, Space: n.Space.Name, SpaceGUID: n.Space.GUID,
		Organization: n.Org.Name, OrganizationGUID: n.Org.GUID, OrganizationRole: n.Role, Scope: n.Scope,
		UnsubscribeID:   unsubscribeID(s.c.EncryptionKey, m.User, n.Client, n.Kind),
		RequestReceived: n.Received.UTC().Format(time.RFC3339Nano), Domain: s.c.Domain,
	}
	var err error
	if p.Endorsement, err = render.Fill("endorsement", n.Endorsement, p); err != nil {
		return p, err
	}
	return p, nil
}

// unsubscribeID returns an id that only the owner of the key can decrypt, or "" without
// a key. Other programs around the service rely on its format.
func unsubscribeID(key, user, client, kind string) string {
	if key == "" {
		return ""
	}
	sum := md5.Sum([]byte(key)) //nolint:gosec // as above
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return "" // cannot fail: the key has the right length
	}
	plain := []byte(base64.StdEncoding.EncodeToString([]byte(strings.Join([]string{user, client, kind}, "|"))))
	out := make([]byte, aes.BlockSize+len(plain))
	_, _ = rand.Read(out[:aes.BlockSize])                                                       // never fails
	cipher.NewCFBEncrypter(block, out[:aes.BlockSize]).XORKeyStream(out[aes.BlockSize:], plain) //nolint:staticcheck // as above
	return base64.URLEncoding.EncodeToString(out)
}

// renderMail renders the parts of a mail that the notice has. If it has only HTML, the
// text is made from it.
func renderMail(m *delivery.Mail, t Template, p render.Placeholders) (err error) {
	m.Text, m.HTML = "", ""
	derived := p.Text == "" && p.HTML != ""
	if derived {
		p.Text = plaintext.FromHTML(p.HTML)
	}
	if m.Subject, err = render.Fill("subject", t.Subject, p); err != nil {
		return err
	}
	m.Subject = render.OneLine(m.Subject)
	if p.Text != "" {
		if m.Text, err = render.Fill("text", t.Text, p); err != nil {
			return err
		}
	}
	if derived {
		p.Text = "" // the HTML part shows the HTML
	}
	if p.HTML != "" {
		body, err := render.Fill("html", t.HTML, render.Escape(p))
		if err != nil {
			return err
		}
		m.HTML = render.Document(p.HTMLComponents, body)
		if derived && strings.TrimSpace(m.Text) == "" { // the template has no text
			m.Text = plaintext.FromHTML(body)
		}
	}
	return nil
}
