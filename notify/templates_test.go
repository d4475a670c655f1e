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
		{"unknown key", `{"name":"n","html":"h","more":1}`, 400, notParsed},
		{"capitals count", `{"Name":"n","html":"h"}`, 400, notParsed},
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
	second := w.do(token, "POST", "/templates", `{"name":"n2","html":"{{.Nope}}"}`).id(t, "template-id")
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
