package notify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dewrun/dew/store"
)

func TestTemplateRefusals(t *testing.T) {
	w := newHTTPWorld(t)
	id := w.do(w.sender(), "POST", "/templates", `{"name":"first","html":"h"}`).id(t, "template-id")
	paths := map[string]string{"/templates": "POST", "/templates/" + id: "PUT", "/default_template": "PUT", "/templates/default": "PUT"}
	const braces = " syntax is malformed please check your braces: "
	for _, tt := range []struct {
		name, body string
		code       int
		message    string
	}{
		{"empty", "", 400, notParsed},
		{"broken", "{", 400, notParsed},
		{"null", "null", 400, notParsed},
		{"array", "[]", 400, notParsed},
		{"unknown key", `{"name":"n","html":"h","more":1}`, 400, `"more" is not a valid property`},
		{"misspelled key", `{"name":"n","htlm":"h"}`, 400, `"htlm" is not a valid property; did you mean "html"?`},
		{"capitals count", `{"Name":"n","html":"h"}`, 400, `"Name" is not a valid property; did you mean "name"?`},
		{"name is a number", `{"name":1,"html":"h"}`, 400, notParsed},
		{"html is a list", `{"name":"n","html":[]}`, 400, notParsed},
		{"text is a number", `{"name":"n","html":"h","text":1}`, 400, notParsed},
		{"subject is a number", `{"name":"n","html":"h","subject":1}`, 400, notParsed},
		{"metadata is a text", `{"name":"n","html":"h","metadata":"m"}`, 400, notParsed},
		{"nothing", "{}", 422, "Missing required field 'name'"},
		{"no name", `{"html":"h"}`, 422, "Missing required field 'name'"},
		{"no html", `{"name":"n"}`, 422, "Missing required field 'html'"},
		{"long name", `{"name":"` + tooLongText + `","html":"h"}`, 422, `"name" has more than 255 characters`},
		{"long subject", `{"name":"n","html":"h","subject":"` + tooLongText + `"}`, 422, `"subject" has more than 255 characters`},
		{"long text", `{"name":"n","html":"h","text":"` + strings.Repeat("x", maxPart+1) + `"}`, 422, `"text" has more than 262144 bytes`},
		{"long html", `{"name":"n","html":"` + strings.Repeat("x", maxPart+1) + `"}`, 422, `"html" has more than 262144 bytes`},
		{"long metadata", `{"name":"n","html":"h","metadata":{"m":"` + strings.Repeat("x", maxPart) + `"}}`, 422, `"metadata" has more than 262144 bytes`},
		{"10 MB", `{"name":"n","html":"` + strings.Repeat("x", 10<<20) + `"}`, 413, "Request body has more than 1048576 bytes"},
		{"html braces", `{"name":"n","html":"<p>\n\n{{.HTML}</p>"}`, 422, "HTML" + braces + `line 3: bad character U+007D '}'`},
		{"text function", `{"name":"n","html":"h","text":"{{exec .Text}}"}`, 422, "Text" + braces + `line 1: function "exec" not defined`},
		{"subject unclosed", `{"name":"n","html":"h","subject":"{{if .Text}}"}`, 422, "Subject" + braces + "line 1: unexpected EOF"},
		{"unknown placeholder", `{"name":"n","html":"<p>\n{{.Nope}}</p>"}`, 422, "HTML cannot be rendered: line 2: there is no placeholder {{.Nope}}"},
		{"unknown placeholder without a value", `{"name":"n","html":"h","text":"{{if not .Space}}{{.Nope}}{{end}}"}`, 422, "Text cannot be rendered: line 1: there is no placeholder {{.Nope}}"},
		{"too expensive", `{"name":"n","html":"h","text":"{{define \"t\"}}{{template \"t\"}}{{end}}{{template \"t\"}}"}`, 422, "Text cannot be rendered: line 1: the template is too expensive to render: it has more than 1000 loop iterations and template calls"},
		{"the subject first", `{"name":"n","html":"{{","text":"{{","subject":"{{.Subject"}`, 422, "Subject" + braces + "line 1: unclosed action"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for path, method := range paths {
				if len(tt.body) > maxPart && method != "POST" {
					continue // once is enough, because large bodies are slow
				}
				w.do(w.sender(), method, path, tt.body).want(t, method+" "+path, tt.code, errorJSON(tt.message))
			}
		})
	}
	w.do(w.sender(), "GET", "/templates", "").want(t, "nothing of it was kept", 200, `{"`+id+`":{"name":"first"}}`)
	w.do(w.sender(), "GET", "/templates/"+id, "").want(t, "as it was", 200, `{"name":"first","subject":"{{.Subject}}","html":"h","text":"","metadata":{}}`)

	const none = `Template with ID "none" could not be found`
	w.do(w.sender(), "GET", "/templates/none", "").want(t, "get", 404, errorJSON(none))
	w.do(w.sender(), "PUT", "/templates/none", `{"name":"n","html":"h"}`).want(t, "put", 404, errorJSON(none))
	w.do(w.sender(), "DELETE", "/templates/none", "").want(t, "delete", 404, errorJSON(none))
	w.do(w.sender(), "GET", "/templates/none/associations", "").want(t, "associations", 404, errorJSON(none))
}

const builtInResponse = `{"name":"Default Template","subject":"CF Notification: {{.Subject}}","html":"\u003cp\u003e{{.Endorsement}}\u003c/p\u003e{{.HTML}}",` +
	`"text":"{{.Endorsement}}\n{{.Text}}","metadata":{}}`

// Templates are created, read, replaced and deleted; the default one always exists.
func TestTemplates(t *testing.T) {
	w := newHTTPWorld(t)
	token := w.sender()
	g := w.do(token, "POST", "/templates", `{"name":"n","html":"<b>{{.HTML}}</b>","text":"{{.Text}}","subject":"S {{.Subject}}","metadata":{"a":[1]}}`)
	id := g.id(t, "template-id")
	g.want(t, "create", 201, `{"template-id":"`+id+`"}`)
	if len(strings.Split(id, "-")) != 5 || len(id) != 36 {
		t.Errorf("id = %q", id)
	}
	w.do(token, "GET", "/templates/"+id, "").want(t, "get", 200,
		`{"name":"n","subject":"S {{.Subject}}","html":"\u003cb\u003e{{.HTML}}\u003c/b\u003e","text":"{{.Text}}","metadata":{"a":[1]}}`)
	w.do(token, "PUT", "/templates/"+id, `{"name":"","html":null,"metadata":null}`).want(t, "put", 204, "")
	w.do(token, "GET", "/templates/"+id, "").want(t, "replaced as a whole", 200, `{"name":"","subject":"{{.Subject}}","html":"","text":"","metadata":null}`)
	second := w.do(token, "POST", "/templates", `{"name":"n2","html":"{{if .Space}}{{.Space}}{{end}}{{.HTMLComponents.Head}}"}`).id(t, "template-id")
	w.do(token, "DELETE", "/templates/"+id, "").want(t, "delete", 204, "")
	w.do(token, "GET", "/templates", "").want(t, "list", 200, `{"`+second+`":{"name":"n2"}}`)

	w.do(token, "GET", "/default_template", "").want(t, "built in", 200, builtInResponse)
	w.do(token, "PUT", "/default_template", `{"name":"Mine","html":"{{.HTML}}"}`).want(t, "put", 204, "")
	const mine = `{"name":"Mine","subject":"{{.Subject}}","html":"{{.HTML}}","text":"","metadata":{}}`
	w.do(token, "GET", "/default_template", "").want(t, "mine", 200, mine)
	w.do(token, "GET", "/templates/default", "").want(t, "by its id", 200, mine)
	w.do(token, "GET", "/templates", "").want(t, "the default one is not listed", 200, `{"`+second+`":{"name":"n2"}}`)
	w.do(token, "DELETE", "/templates/default", "").want(t, "delete", 204, "")
	w.do(token, "GET", "/default_template", "").want(t, "built in again", 200, builtInResponse)
}

// A deleted template is no longer assigned.
func TestAssociations(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	token := w.sender()
	list := func(id, want string) {
		t.Helper()
		w.do(token, "GET", "/templates/"+id+"/associations", "").want(t, id, 200, `{"associations":[`+want+`]}`)
	}
	const all = `{"client":"sender"},{"client":"sender","notification":"alarm"},{"client":"sender","notification":"news"}`
	list("default", all)
	id := w.do(token, "POST", "/templates", `{"name":"n","html":"h"}`).id(t, "template-id")
	list(id, "")
	w.do(token, "PUT", "/clients/sender/template", `{"template":"`+id+`"}`).want(t, "client", 204, "")
	w.do(token, "PUT", "/clients/sender/notifications/news/template", `{"template":"`+id+`"}`).want(t, "kind", 204, "")
	list(id, `{"client":"sender"},{"client":"sender","notification":"news"}`)
	list("default", `{"client":"sender","notification":"alarm"}`)
	w.do(token, "DELETE", "/templates/"+id, "").want(t, "delete", 204, "")
	list("default", all)
}

// The number of templates is limited.
func TestTemplatesBounded(t *testing.T) {
	w := newHTTPWorld(t)
	err := w.db.Update(func(tx *store.Tx) (err error) {
		for i := 0; i < maxTemplates && err == nil; i++ {
			id := fmt.Sprint(i)
			err = w.s.buckets.templates.With(tx).Put(id, Template{ID: id})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.do(w.sender(), "POST", "/templates", `{"name":"n","html":"h"}`).want(t, "one more", 422, errorJSON("The limit of 1000 templates is reached; delete templates that are not used"))
}

// The number of templates of one client is limited, in both versions.
func TestClientTemplatesBounded(t *testing.T) {
	w := newHTTPWorld(t)
	for n := range maxClientTemplates {
		w.do(w.sender(), "POST", "/templates", fmt.Sprintf(`{"name":"%d","html":"h"}`, n)).id(t, "template-id")
	}
	const full = `Client "sender" has reached the limit of 200 templates per client; delete templates that are not used`
	w.do(w.sender(), "POST", "/templates", `{"name":"n","html":"h"}`).want(t, "one more", 422, errorJSON(full))
	w.do(w.client("other", ScopeTemplatesWrite), "POST", "/templates", `{"name":"n","html":"h"}`).id(t, "template-id")
}

// A body names the template with any of three keys. A body without one changes nothing.
func TestAssignmentKeys(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	token := w.sender()
	id := w.do(token, "POST", "/templates", `{"name":"n","html":"h"}`).id(t, "template-id")
	for _, path := range []string{"/clients/sender/template", "/clients/sender/notifications/news/template"} {
		assigned := func(want bool) {
			t.Helper()
			list := w.do(token, "GET", "/templates/"+id+"/associations", "")
			if got := strings.Contains(list.body, id) || strings.Contains(list.body, "sender"); got != want {
				t.Errorf("%s: assigned = %t, want %t: %s", path, got, want, list.body)
			}
		}
		for _, key := range assignmentKeys {
			w.do(token, "PUT", path, `{"`+key+`":"`+id+`"}`).want(t, key, 204, "")
			assigned(true)
			for _, body := range []string{"{}", "null", `{"templates":"x"}`} {
				w.do(token, "PUT", path, body).want(t, body, 422, errorJSON(`"template" is a required field: the id of a template, or "default"`))
			}
			w.do(token, "PUT", path, `{"template":"default","`+assignmentKeys[1]+`":"`+id+`"}`).
				want(t, "two", 422, errorJSON(`"template" and "template-id" name different templates`))
			w.do(token, "PUT", path, `{"template_id":"`+id+`","template":"`+id+`","more":1}`).want(t, "the same twice", 204, "")
			assigned(true)
			for _, reset := range []string{`""`, `"default"`, "null"} {
				w.do(token, "PUT", path, `{"`+key+`":"`+id+`"}`).want(t, key, 204, "")
				w.do(token, "PUT", path, `{"`+key+`":`+reset+`}`).want(t, reset, 204, "")
				assigned(false)
			}
		}
	}
}
