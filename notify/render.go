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
	"iter"
	"strings"
	"text/template"
	"time"
	"unicode"

	"golang.org/x/net/html"

	"github.com/dewrun/dew/store"
)

// placeholders is what templates are filled in with. The names are the service's.
type placeholders struct {
	From, ReplyTo, To string
	Subject           string
	Text              string
	HTML              string
	HTMLComponents    HTML
	KindDescription   string
	SourceDescription string
	UserGUID          string
	ClientID          string
	MessageID         string
	Space             string
	SpaceGUID         string
	Organization      string
	OrganizationGUID  string
	OrganizationRole  string
	UnsubscribeID     string
	Scope             string
	Endorsement       string
	RequestReceived   string
	Domain            string
}

// escaped returns the placeholders for a page: what people wrote as text becomes
// text there, too. What the sender wrote as HTML stays as it is, and so do ids.
func (p placeholders) escaped() placeholders {
	for _, v := range []*string{
		&p.From, &p.To, &p.ReplyTo, &p.Subject, &p.Text, &p.KindDescription, &p.SourceDescription, &p.ClientID,
		&p.MessageID, &p.Space, &p.Organization, &p.Endorsement,
	} {
		*v = template.HTMLEscapeString(*v)
	}
	return p
}

// size is how many bytes all of them have, about as they are printed.
func (p placeholders) size() int {
	n := namesSize + p.HTMLComponents.size()
	for _, v := range []string{
		p.From, p.ReplyTo, p.To, p.Subject, p.Text, p.HTML, p.KindDescription, p.SourceDescription, p.UserGUID, p.ClientID, p.MessageID,
		p.Space, p.SpaceGUID, p.Organization, p.OrganizationGUID, p.OrganizationRole, p.UnsubscribeID, p.Scope, p.Endorsement,
		p.RequestReceived, p.Domain,
	} {
		n += len(v)
	}
	return n
}

// namesSize is more than the names of the placeholders have.
const namesSize = 512

func (h HTML) size() int {
	return namesSize + len(h.Doctype) + len(h.Head) + len(h.BodyAttributes) + len(h.BodyContent)
}

// Compose makes the mail of a message, unless its recipient does not want it or
// cannot have it. Nobody can refuse what is critical.
func (s *Server) Compose(_ context.Context, m Message, n Notice) (mail Mail, err error) {
	var t Template
	err = s.c.DB.View(func(tx *store.Tx) error {
		if err := s.wanted(tx, m, n); err != nil {
			return err
		}
		t, err = s.chosen(tx, n)
		return err
	})
	if err != nil {
		return mail, err
	}
	if !strings.Contains(m.Email, "@") {
		return mail, ErrUndeliverable
	}
	mail = Mail{
		ID: m.ID, From: s.c.From, To: m.Email, ReplyTo: n.ReplyTo, Client: n.Client, Kind: n.Kind, User: m.User,
		Received: n.Received, Sent: time.Now(),
	}
	p, err := s.placeholders(m, n)
	if err != nil {
		return mail, err
	}
	if err := render(&mail, t, p); err != nil {
		s.log.Warn("a template cannot be filled in; the default one is taken", "template", t.ID, "message", m.ID, "err", err)
		return mail, render(&mail, fallback(n), p)
	}
	return mail, nil
}

// wanted returns ErrUnsubscribed for what a user does not want. Whether a kind is
// critical counts as it is now.
func (s *Server) wanted(tx *store.Tx, m Message, n Notice) error {
	if n.Version == V2 {
		return s.wanted2(tx, m, n)
	}
	k, err := orNone(s.shelves.kinds.With(tx).Get(keyOf(n.Client, n.Kind)))
	if err != nil {
		return fmt.Errorf("cannot read notification %s of client %s: %w", n.Kind, n.Client, err)
	}
	if k.Critical || m.User == "" {
		return nil
	}
	silent, err := s.isSilent(tx, m.User)
	if err != nil {
		return err
	}
	left, err := s.hasLeft(tx, unsubscription{m.User, n.Client, n.Kind})
	if err != nil {
		return err
	}
	if silent || left {
		return ErrUnsubscribed
	}
	return nil
}

// chosen is the template of a notice: its own, the kind's, the client's, or the
// default one, which also stands in for one that is gone.
func (s *Server) chosen(tx *store.Tx, n Notice) (Template, error) {
	if n.Version == V2 {
		return s.chosen2(tx, n)
	}
	k, err := orNone(s.shelves.kinds.With(tx).Get(keyOf(n.Client, n.Kind)))
	if err != nil {
		return Template{}, fmt.Errorf("cannot read notification %s of client %s: %w", n.Kind, n.Client, err)
	}
	c, err := orNone(s.shelves.clients.With(tx).Get(keyOf(n.Client)))
	if err != nil {
		return Template{}, fmt.Errorf("cannot read client %s: %w", n.Client, err)
	}
	shelf := s.shelves.templates.With(tx)
	t, err := s.template(shelf, cmp.Or(n.Template, k.Template, c.Template, defaultTemplate))
	if _, gone := errors.AsType[*problem](err); gone {
		return s.template(shelf, defaultTemplate)
	}
	return t, err
}

// fallback is a template that never fails.
func fallback(n Notice) Template {
	if n.Version == V2 {
		return builtIn2
	}
	return builtIn
}

// placeholders says what the names in a template stand for.
func (s *Server) placeholders(m Message, n Notice) (placeholders, error) {
	p := placeholders{
		From: s.c.From, ReplyTo: n.ReplyTo, To: m.Email, Subject: n.Subject, Text: n.Text, HTML: n.HTML.BodyContent, HTMLComponents: n.HTML,
		KindDescription: cmp.Or(n.KindDescription, n.Kind), SourceDescription: cmp.Or(n.SourceDescription, n.Client),
		UserGUID: m.User, ClientID: n.Client, MessageID: m.ID, Space: n.Space.Name, SpaceGUID: n.Space.GUID,
		Organization: n.Org.Name, OrganizationGUID: n.Org.GUID, OrganizationRole: n.Role, Scope: n.Scope,
		UnsubscribeID:   unsubscribeID(s.c.EncryptionKey, m.User, n.Client, n.Kind),
		RequestReceived: n.Received.UTC().Format(time.RFC3339Nano), Domain: s.c.Domain,
	}
	var err error
	if p.Endorsement, err = fill("endorsement", n.Endorsement, p); err != nil {
		return p, err
	}
	return p, nil
}

// unsubscribeID is an id that only who has the key can read; without a key there
// is none. Its form is the one that programs beside the service know.
func unsubscribeID(key, user, client, kind string) string {
	if key == "" {
		return ""
	}
	sum := md5.Sum([]byte(key)) //nolint:gosec // as above
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return "" // the key has the right length
	}
	plain := []byte(base64.StdEncoding.EncodeToString([]byte(strings.Join([]string{user, client, kind}, "|"))))
	out := make([]byte, aes.BlockSize+len(plain))
	_, _ = rand.Read(out[:aes.BlockSize])                                                       // it never fails
	cipher.NewCFBEncrypter(block, out[:aes.BlockSize]).XORKeyStream(out[aes.BlockSize:], plain) //nolint:staticcheck // as above
	return base64.URLEncoding.EncodeToString(out)
}

// render fills in the parts of a mail that the notice has.
func render(m *Mail, t Template, p placeholders) (err error) {
	m.Text, m.HTML = "", ""
	if m.Subject, err = fill("subject", t.Subject, p); err != nil {
		return err
	}
	m.Subject = oneLine(m.Subject)
	if p.Text != "" {
		if m.Text, err = fill("text", t.Text, p); err != nil {
			return err
		}
	}
	if p.HTML != "" {
		body, err := fill("html", t.HTML, p.escaped())
		if err != nil {
			return err
		}
		m.HTML = document(p.HTMLComponents, body)
	}
	return nil
}

// document puts a page around a body, with what the sender's own page had.
func document(parts HTML, body string) string {
	return fmt.Sprintf("%s\n<head>%s</head>\n<html>\n\t<body %s>\n\t\t%s\n\t</body>\n</html>",
		parts.Doctype, parts.Head, parts.BodyAttributes, body)
}

// oneLine keeps a text from being more than one line of a header.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}

// dissect takes a sender's page apart. What has no body has no content.
func dissect(page string) (HTML, error) {
	if strings.TrimSpace(page) == "" {
		return HTML{}, nil
	}
	if err := costly(page); err != nil {
		return HTML{}, err
	}
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return HTML{}, fmt.Errorf("cannot read the html: %w", err)
	}
	parts := HTML{Doctype: doctype(page)}
	for node := range elements(root, "html") {
		for head := range elements(node, "head") {
			parts.Head, err = inner(head)
		}
		for body := range elements(node, "body") {
			var failed error
			parts.BodyAttributes = attributes(body)
			parts.BodyContent, failed = inner(body)
			err = errors.Join(err, failed)
		}
	}
	if len(parts.BodyContent)+len(parts.BodyAttributes)+len(parts.Head) > maxParts {
		return HTML{}, errCostlyPage
	}
	if strings.TrimSpace(parts.BodyContent) == "" {
		parts.BodyContent = ""
	}
	return parts, err
}

// elements are the children of a node with a name.
func elements(node *html.Node, name string) iter.Seq[*html.Node] {
	return func(yield func(*html.Node) bool) {
		for child := range node.ChildNodes() {
			if child.Type == html.ElementNode && child.Data == name && !yield(child) {
				return
			}
		}
	}
}

// doctype returns the declaration at the top of a page, if it has one.
func doctype(page string) string {
	_, rest, ok := strings.Cut(page, "<!DOCTYPE")
	if !ok {
		return ""
	}
	kind, _, ok := strings.Cut(rest, ">")
	if !ok {
		return ""
	}
	return "<!DOCTYPE" + kind + ">"
}

// attributes writes the attributes of an element, so that none can end the tag.
func attributes(node *html.Node) string {
	var out []string
	for _, a := range node.Attr {
		out = append(out, fmt.Sprintf(`%s="%s"`, a.Key, template.HTMLEscapeString(a.Val)))
	}
	return strings.Join(out, " ")
}

// inner writes what is inside of an element.
func inner(node *html.Node) (string, error) {
	var b strings.Builder
	for child := range node.ChildNodes() {
		if err := html.Render(&b, child); err != nil {
			return "", fmt.Errorf("cannot write the html: %w", err)
		}
	}
	return b.String(), nil
}
