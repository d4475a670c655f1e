package notify

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/render"
	"github.com/dewrun/dew/spelling"
	"github.com/dewrun/dew/store"
)

// Template renders the parts of a mail from the texts of a sender.
type Template struct {
	ID       string          `json:"id"`
	Client   string          `json:"client,omitempty"` // the client that created it; in version 2 its owner
	Name     string          `json:"name"`
	Subject  string          `json:"subject"`
	Text     string          `json:"text"`
	HTML     string          `json:"html"`
	Metadata json.RawMessage `json:"metadata"`
}

const (
	defaultTemplate = "default" // id of the template that needs no association
	defaultSubject  = "{{.Subject}}"
	maxPart         = 256 << 10 // bytes of one part of a template
	maxTemplates    = 1000

	// maxClientTemplates is the number of templates of one client.
	maxClientTemplates = 200
)

// builtIn is the default template until an administrator replaces it.
var builtIn = Template{
	ID: defaultTemplate, Name: "Default Template", Subject: "CF Notification: {{.Subject}}",
	Text: "{{.Endorsement}}\n{{.Text}}", HTML: "<p>{{.Endorsement}}</p>{{.HTML}}", Metadata: json.RawMessage("{}"),
}

// templateResponse is the JSON format of a template.
type templateResponse struct {
	Name     string          `json:"name"`
	Subject  string          `json:"subject"`
	HTML     string          `json:"html"`
	Text     string          `json:"text"`
	Metadata json.RawMessage `json:"metadata"`
}

// newID returns a new id in the format of a UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// templateKeys are the members of the body of a template.
var templateKeys = []string{"name", "html", "text", "subject", "metadata"}

// unknownProperty returns the error for a member with an unknown name.
func unknownProperty(name string, known []string) *problem {
	message := fmt.Sprintf("%q is not a valid property", inbound.Shorten(name))
	if near := spelling.Nearest(name, known); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return problemf(http.StatusBadRequest, "%s", message)
}

// readTemplate parses the body of a request that creates or replaces a template.
func readTemplate(r request) (t Template, err error) {
	f, err := readFields(r)
	if err != nil {
		return t, asParseError(err)
	}
	if f == nil {
		return t, errParse
	}
	if name, ok := f.unknownKey(templateKeys...); ok {
		return t, unknownProperty(name, templateKeys)
	}
	for _, name := range []string{"name", "html"} {
		if _, ok := f[name]; !ok {
			return t, invalid("Missing required field '%s'", name)
		}
	}
	err = f.decode(map[string]any{"name": &t.Name, "html": &t.HTML, "text": &t.Text, "subject": &t.Subject})
	if err != nil {
		return t, err
	}
	t.Subject = cmp.Or(t.Subject, defaultSubject)
	if t.Metadata, err = readMetadata(f["metadata"]); err != nil {
		return t, err
	}
	return t, t.check()
}

// readMetadata parses the metadata of a template: an object or null.
func readMetadata(raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return json.RawMessage("{}"), nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil, errParse
	}
	return raw, nil
}

// check refuses a template that cannot be stored or rendered, and says which part.
func (t Template) check() error {
	if err := cmp.Or(tooLong("name", t.Name), tooLong("subject", t.Subject)); err != nil {
		return err
	}
	if len(t.Metadata) > maxPart {
		return invalid("%q has more than %d bytes", "metadata", maxPart)
	}
	for _, part := range []struct{ label, name, source string }{
		{"Subject", "subject", t.Subject}, {"Text", "text", t.Text}, {"HTML", "html", t.HTML},
	} {
		if len(part.source) > maxPart {
			return invalid("%q has more than %d bytes", part.name, maxPart)
		}
		if err := render.Check(part.name, part.source); err != nil {
			return invalid("%s syntax is malformed please check your braces: %s", part.label, err)
		}
		if err := render.Try(part.name, part.source); err != nil {
			return invalid("%s cannot be rendered: %s", part.label, err)
		}
	}
	return nil
}

// createTemplate handles POST /templates.
func (s *templates) createTemplate(r request) (any, error) {
	t, err := readTemplate(r)
	if err != nil {
		return nil, err
	}
	t.ID, t.Client = newID(), r.who.Client
	err = s.c.DB.Update(func(tx *store.Tx) error { return addTemplate(s.buckets.templates.With(tx), t) })
	if err != nil {
		return nil, err
	}
	return reply{status: http.StatusCreated, body: map[string]string{"template-id": t.ID}}, nil
}

// addTemplate stores a new template, unless there are too many.
func addTemplate(bucket store.Bucket[Template], t Template) error {
	all, err := bucket.All()
	if err != nil {
		return fmt.Errorf("cannot count templates: %w", err)
	}
	if len(all) >= maxTemplates {
		return invalid("The limit of %d templates is reached; delete templates that are not used", maxTemplates)
	}
	own := 0
	for _, old := range all {
		if old.Client == t.Client {
			own++
		}
	}
	if own >= maxClientTemplates {
		return invalid("Client %q has reached the limit of %d templates per client; delete templates that are not used", inbound.Shorten(t.Client), maxClientTemplates)
	}
	if err := bucket.Put(t.ID, t); err != nil {
		return fmt.Errorf("cannot store template %s: %w", t.ID, err)
	}
	return nil
}

// listTemplates handles GET /templates.
func (s *templates) listTemplates(request) (any, error) {
	all, err := s.buckets.templates.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list templates: %w", err)
	}
	type name struct {
		Name string `json:"name"`
	}
	out := map[string]name{}
	for _, t := range all {
		if t.ID != defaultTemplate {
			out[t.ID] = name{t.Name}
		}
	}
	return out, nil
}

// templateID returns the id in the path; /default_template has none.
func templateID(r request) string { return cmp.Or(r.PathValue("id"), defaultTemplate) }

// template returns a template, or a not-found error. The default one always exists.
func (s *core) template(bucket store.Bucket[Template], id string) (Template, error) {
	t, err := bucket.Get(id)
	switch {
	case err == nil:
		return t, nil
	case !errors.Is(err, store.ErrNotFound):
		return t, fmt.Errorf("cannot read template %s: %w", id, err)
	case id == defaultTemplate:
		return builtIn, nil
	}
	return t, notFound("Template with ID %q could not be found", inbound.Shorten(id))
}

// getTemplate handles GET /templates/{id} and GET /default_template.
func (s *templates) getTemplate(r request) (any, error) {
	t, err := s.template(s.buckets.templates, templateID(r))
	if err != nil {
		return nil, err
	}
	return templateResponse{Name: t.Name, Subject: t.Subject, HTML: t.HTML, Text: t.Text, Metadata: t.Metadata}, nil
}

// updateTemplate handles PUT /templates/{id} and PUT /default_template.
func (s *templates) updateTemplate(r request) (any, error) {
	t, err := readTemplate(r)
	if err != nil {
		return nil, err
	}
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		bucket := s.buckets.templates.With(tx)
		old, err := s.template(bucket, templateID(r))
		if err != nil {
			return err
		}
		t.ID, t.Client = old.ID, old.Client
		if err := bucket.Put(t.ID, t); err != nil {
			return fmt.Errorf("cannot store template %s: %w", t.ID, err)
		}
		return nil
	})
}

// deleteTemplate handles DELETE /templates/{id}. Clients and kinds with the template
// get the default one. Deleting the default template resets it to the built-in one.
func (s *templates) deleteTemplate(r request) (any, error) {
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		bucket := s.buckets.templates.With(tx)
		t, err := s.template(bucket, templateID(r))
		if err != nil {
			return err
		}
		if err := bucket.Delete(t.ID); err != nil {
			return fmt.Errorf("cannot delete template %s: %w", t.ID, err)
		}
		return s.release(tx, t.ID)
	})
}

// release removes a template from the clients and kinds that use it.
func (s *templates) release(tx *store.Tx, template string) error {
	clients, kinds, err := s.associated(tx, template)
	if err != nil {
		return err
	}
	for _, c := range clients {
		c.Template = ""
		if err := s.buckets.clients.With(tx).Put(keyOf(c.ID), c); err != nil {
			return fmt.Errorf("cannot store client %s: %w", c.ID, err)
		}
	}
	for _, k := range kinds {
		k.Template = ""
		if err := s.buckets.kinds.With(tx).Put(keyOf(k.Client, k.ID), k); err != nil {
			return fmt.Errorf("cannot store notification %s of client %s: %w", k.ID, k.Client, err)
		}
	}
	return nil
}

// associated returns the clients and kinds that use a template. For the default one,
// these are the clients and kinds without a template.
func (s *templates) associated(tx *store.Tx, template string) ([]Client, []Kind, error) {
	clients, err := s.buckets.clients.With(tx).All()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list clients: %w", err)
	}
	kinds, err := s.buckets.kinds.With(tx).All()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list notifications: %w", err)
	}
	clients = slices.DeleteFunc(clients, func(c Client) bool { return cmp.Or(c.Template, defaultTemplate) != template })
	kinds = slices.DeleteFunc(kinds, func(k Kind) bool { return cmp.Or(k.Template, defaultTemplate) != template })
	return clients, kinds, nil
}

// listAssociations handles GET /templates/{id}/associations.
func (s *templates) listAssociations(r request) (any, error) {
	type association struct {
		Client string `json:"client"`
		Kind   string `json:"notification,omitempty"`
	}
	out := []association{}
	err := s.c.DB.View(func(tx *store.Tx) error {
		if _, err := s.template(s.buckets.templates.With(tx), templateID(r)); err != nil {
			return err
		}
		clients, kinds, err := s.associated(tx, templateID(r))
		for _, c := range clients {
			out = append(out, association{Client: c.ID})
		}
		for _, k := range kinds {
			out = append(out, association{Client: k.Client, Kind: k.ID})
		}
		return err
	})
	return map[string][]association{"associations": out}, err
}
