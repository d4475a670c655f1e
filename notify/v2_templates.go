package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
)

// builtIn2 is the default template of version 2 until an administrator replaces it.
var builtIn2 = Template{
	ID: defaultTemplate, Name: "The Default Template", Subject: defaultSubject, Text: "{{.Text}}", HTML: "{{.HTML}}",
	Metadata: json.RawMessage("{}"),
}

type templateResponse2 struct {
	ID string `json:"id"`
	templateResponse
	Links links `json:"_links"`
}

func presentTemplate2(t Template) templateResponse2 {
	return templateResponse2{
		ID: t.ID, templateResponse: templateResponse{Name: t.Name, Subject: t.Subject, HTML: t.HTML, Text: t.Text, Metadata: t.Metadata},
		Links: linksTo("self", "/templates/"+t.ID),
	}
}

// templateBody is the body of a request for a template; nil: not set.
type templateBody struct {
	Name     *string         `json:"name"`
	Text     *string         `json:"text"`
	HTML     *string         `json:"html"`
	Subject  *string         `json:"subject"`
	Metadata json.RawMessage `json:"metadata"`
}

// set applies the fields of the body and checks the template.
func (b templateBody) set(t *Template) error {
	setIf(&t.Name, b.Name)
	setIf(&t.Text, b.Text)
	setIf(&t.HTML, b.HTML)
	setIf(&t.Subject, b.Subject)
	t.Subject = cmp.Or(t.Subject, defaultSubject)
	if b.Metadata != nil || t.Metadata == nil {
		m, err := readMetadata(b.Metadata)
		if err != nil {
			return problemf(http.StatusBadRequest, badTemplateBody)
		}
		t.Metadata = m
	}
	if t.Name == "" {
		return invalid(`Template "name" field cannot be empty`)
	}
	if t.Text == "" && t.HTML == "" {
		return invalid("missing either template text or html")
	}
	return t.check()
}

// template2 returns a template of the calling client, or the default one.
func (s *core) template2(tx *store.Tx, r request, id string) (Template, error) {
	t, err := s.buckets.templates2.With(tx).Get(id)
	if id == defaultTemplate && errors.Is(err, store.ErrNotFound) {
		return builtIn2, nil
	}
	if err == nil && id != defaultTemplate && t.Client != r.who.Client {
		err = store.ErrNotFound
	}
	return t, notFoundError(err, "Template", id)
}

// createTemplate2 handles POST /templates.
func (s *templates2) createTemplate2(r request) (any, error) {
	var body templateBody
	if err := decodeBody2(r, &body, badTemplateBody); err != nil {
		return nil, err
	}
	t := Template{ID: newID(), Client: r.who.Client}
	if err := body.set(&t); err != nil {
		return nil, err
	}
	err := s.c.DB.Update(func(tx *store.Tx) error { return addTemplate(s.buckets.templates2.With(tx), t) })
	if err != nil {
		return nil, err
	}
	return reply{status: http.StatusCreated, body: presentTemplate2(t)}, nil
}

// listTemplates2 handles GET /templates.
func (s *templates2) listTemplates2(r request) (any, error) {
	all, err := s.buckets.templates2.By("client", r.who.Client)
	if err != nil {
		return nil, fmt.Errorf("cannot list templates: %w", err)
	}
	responses := []templateResponse2{}
	for _, t := range all {
		responses = append(responses, presentTemplate2(t))
	}
	return map[string]any{"templates": responses, "_links": linksTo("self", "/templates")}, nil
}

// getTemplate2 handles GET /templates/{id}.
func (s *templates2) getTemplate2(r request) (any, error) {
	var t Template
	err := s.c.DB.View(func(tx *store.Tx) (err error) {
		t, err = s.template2(tx, r, r.PathValue("id"))
		return err
	})
	return presentTemplate2(t), err
}

// updateTemplate2 handles PUT /templates/{id}. Missing fields do not change.
func (s *templates2) updateTemplate2(r request) (any, error) {
	var body templateBody
	if err := decodeBody2(r, &body, badTemplateBody); err != nil {
		return nil, err
	}
	var t Template
	err := s.c.DB.Update(func(tx *store.Tx) (err error) {
		if t, err = s.template2(tx, r, templateID(r)); err != nil {
			return err
		}
		if err := body.set(&t); err != nil {
			return err
		}
		return storeError(s.buckets.templates2.With(tx).Put(t.ID, t), "template", t.ID)
	})
	return presentTemplate2(t), err
}

// deleteTemplate2 handles DELETE /templates/{id}. Deleting the default template resets
// it to the built-in one.
func (s *templates2) deleteTemplate2(r request) (any, error) {
	return noContent, s.c.DB.Update(func(tx *store.Tx) error {
		t, err := s.template2(tx, r, templateID(r))
		if err != nil {
			return err
		}
		return storeError(s.buckets.templates2.With(tx).Delete(t.ID), "template", t.ID)
	})
}

// templateForV2 is like templateFor, for campaigns, which have a template.
func (s *composer) templateForV2(tx *store.Tx, n delivery.Notice) (Template, error) {
	bucket := s.buckets.templates2.With(tx)
	for _, id := range []string{cmp.Or(n.Template, defaultTemplate), defaultTemplate} {
		t, err := bucket.Get(id)
		if err == nil {
			return t, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return t, fmt.Errorf("cannot read template %s: %w", id, err)
		}
	}
	return builtIn2, nil
}
