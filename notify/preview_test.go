package notify

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

func TestPreview(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	token := w.sender()
	id := w.do(token, "POST", "/templates", `{"name":"n","subject":"S {{.Subject}}","html":"<i>{{.HTML}}</i>","text":"kind {{.KindDescription}} of {{.SourceDescription}} in {{.Space}}"}`).id(t, "template-id")
	w.do(token, "PUT", "/clients/sender/notifications/news/template", `{"template":"`+id+`"}`).want(t, "assign", 204, "")
	for _, tt := range []struct {
		name                string
		p                   Preview
		subject, text, html string
	}{
		{"default", Preview{}, "CF Notification: Your invoice", "Your invoice is ready.", "<p>Your invoice is ready.</p>"},
		{"stored", Preview{ID: id}, "S Your invoice", "kind Invoices of Shop in dev", "<i><p>Your invoice is ready.</p></i>"},
		{"of the kind", Preview{Client: "sender", Kind: "news"}, "S Your invoice", "kind All the news of The Sender in dev", "<i>"},
		{"data", Preview{ID: id, Data: []byte(`{"subject":"Hi","HTML":"<html><body><b>x</b></body></html>","space":"prod"}`)}, "S Hi", "in prod", "<i><b>x</b></i>"},
		{"not stored", Preview{Template: &Template{HTML: "{{.HTML}}!"}, Data: []byte(`{"HTML":"<p>a</p>"}`)}, "Your invoice", "a\n\n!", "<p>a</p>!"},
		{"only text", Preview{Data: []byte(`{"Text":"only"}`)}, "Your invoice", "only", ""},
	} {
		m := testkit.Must(w.s.Preview(tt.p))(t)
		if !strings.Contains(m.Subject, tt.subject) || !strings.Contains(m.Text, tt.text) || !strings.Contains(m.HTML, tt.html) || tt.html == "" && m.HTML != "" {
			t.Errorf("%s: %+v", tt.name, m)
		}
	}
	for name, p := range map[string]Preview{
		"could not be found": {ID: "none"}, "Notification with id": {Client: "sender", Kind: "none"}, "cannot be rendered": {Template: &Template{Text: "{{.Nope}}"}},
		"names of placeholders": {Data: []byte(`{"Nope":1}`)}, "must be a JSON object": {Data: []byte(`[]`)},
	} {
		if _, err := w.s.Preview(p); !IsInvalid(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want %q", p, err, name)
		}
	}
}
