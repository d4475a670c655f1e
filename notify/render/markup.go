package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"text/template"
	"unicode"

	"golang.org/x/net/html"

	"github.com/dewrun/dew/notify/delivery"
)

// Placeholders has the values of the placeholders in templates. The names are those of
// Cloud Foundry's notification service.
type Placeholders struct {
	From, ReplyTo, To string
	Subject           string
	Text              string
	HTML              string
	HTMLComponents    delivery.HTML
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
	UnsubscribeURL    string
	Scope             string
	Endorsement       string
	RequestReceived   string
	Domain            string
}

// Sample returns placeholders with an example of each value.
func Sample() Placeholders {
	return Placeholders{
		From: "no-reply@example.com", ReplyTo: "support@example.com", To: "ada@example.com", Subject: "Your invoice",
		Text: "Your invoice is ready.", HTML: "<p>Your invoice is ready.</p>",
		HTMLComponents: delivery.HTML{
			Doctype: "<!DOCTYPE html>", Head: "<title>Your invoice</title>", BodyAttributes: `class="mail"`, BodyContent: "<p>Your invoice is ready.</p>",
		},
		KindDescription: "Invoices", SourceDescription: "Shop", UserGUID: "4f0f6b8c-6b0d-4f7e-9d9c-0c6c2f9a3a11", ClientID: "shop",
		MessageID: "0192f0a4-7d1c-7cc3-9a52-2b8f6d1c4e55", Space: "dev", SpaceGUID: "a1b2c3d4-0000-4000-8000-000000000001",
		Organization: "local", OrganizationGUID: "a1b2c3d4-0000-4000-8000-000000000002", OrganizationRole: "OrgManager",
		UnsubscribeID: "dW5zdWJzY3JpYmU=", UnsubscribeURL: "https://example.com/notify/unsubscribe/eyJ2IjoxfQ.c2ln", Scope: "cloud_controller.admin",
		Endorsement:     `You received this message because you belong to the "dev" space in the "local" organization.`,
		RequestReceived: "2026-01-02T03:04:05.000000006Z", Domain: "example.com",
	}
}

// WithData returns the placeholders with the values of a JSON object whose keys are their
// names, such as {"Subject": "Hello", "HTML": "<p>Hi</p>"}. Upper and lower case are the
// same. If it has a text or HTML, the other one is empty unless it is there as well.
func (p Placeholders) WithData(raw []byte) (Placeholders, error) {
	var given Placeholders
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil {
		return p, fmt.Errorf("the data must be a JSON object with the names of placeholders: %w", err)
	}
	if given.Text != "" || given.HTML != "" {
		p.Text, p.HTML = "", ""
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("the data must be a JSON object with the names of placeholders: %w", err)
	}
	parts, err := SplitHTML(p.HTML)
	if err != nil {
		return p, err
	}
	p.HTMLComponents, p.HTML = parts, parts.BodyContent
	return p, nil
}

// Escape returns the placeholders for an HTML page: plain text is escaped. The sender's
// HTML and ids are unchanged.
func Escape(p Placeholders) Placeholders {
	for _, v := range []*string{
		&p.From, &p.To, &p.ReplyTo, &p.Subject, &p.Text, &p.KindDescription, &p.SourceDescription, &p.ClientID,
		&p.MessageID, &p.Space, &p.Organization, &p.Endorsement,
	} {
		*v = template.HTMLEscapeString(*v)
	}
	return p
}

// size returns the approximate size of all values in bytes, as they are printed.
func (p Placeholders) size() int {
	n := namesSize + htmlSize(p.HTMLComponents)
	for _, v := range []string{
		p.From, p.ReplyTo, p.To, p.Subject, p.Text, p.HTML, p.KindDescription, p.SourceDescription, p.UserGUID, p.ClientID, p.MessageID,
		p.Space, p.SpaceGUID, p.Organization, p.OrganizationGUID, p.OrganizationRole, p.UnsubscribeID, p.UnsubscribeURL, p.Scope, p.Endorsement,
		p.RequestReceived, p.Domain,
	} {
		n += len(v)
	}
	return n
}

// namesSize is more than the total length of the placeholder names.
const namesSize = 512

func htmlSize(h delivery.HTML) int {
	return namesSize + len(h.Doctype) + len(h.Head) + len(h.BodyAttributes) + len(h.BodyContent)
}

// Document returns a page with this body and with the other parts of the sender's page.
func Document(parts delivery.HTML, body string) string {
	return fmt.Sprintf("%s\n<head>%s</head>\n<html>\n\t<body %s>\n\t\t%s\n\t</body>\n</html>",
		parts.Doctype, parts.Head, parts.BodyAttributes, body)
}

// OneLine makes a text fit into one header line.
func OneLine(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, unicode.IsControl), " ")
}

// SplitHTML splits a sender's page into its parts. Without a body, the content is
// empty.
func SplitHTML(page string) (delivery.HTML, error) {
	if strings.TrimSpace(page) == "" {
		return delivery.HTML{}, nil
	}
	if err := checkCost(page); err != nil {
		return delivery.HTML{}, err
	}
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return delivery.HTML{}, fmt.Errorf("cannot parse the HTML: %w", err)
	}
	parts := delivery.HTML{Doctype: doctype(page)}
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
		return delivery.HTML{}, errExpensivePage
	}
	if strings.TrimSpace(parts.BodyContent) == "" {
		parts.BodyContent = ""
	}
	return parts, err
}

// elements returns the child elements of a node with this name.
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

// attributes formats the attributes of an element so that none can close the tag.
func attributes(node *html.Node) string {
	var out []string
	for _, a := range node.Attr {
		out = append(out, fmt.Sprintf(`%s="%s"`, a.Key, template.HTMLEscapeString(a.Val)))
	}
	return strings.Join(out, " ")
}

// inner returns the HTML inside an element.
func inner(node *html.Node) (string, error) {
	var b strings.Builder
	for child := range node.ChildNodes() {
		if err := html.Render(&b, child); err != nil {
			return "", fmt.Errorf("cannot render the HTML: %w", err)
		}
	}
	return b.String(), nil
}
