package notify

import (
	"fmt"
	"strings"
	"testing"
)

const (
	notParsed    = "Request body could not be parsed"
	noCritical   = "UAA Scopes Error: Client does not have authority to register critical notifications."
	unknownNews  = `Notification with ID "none" belonging to client "sender" could not be found`
	listOfSender = `{"sender":{"name":"The Sender","template":"default","notifications":{` +
		`"alarm":{"description":"Alarms","template":"default","critical":true},` +
		`"news":{"description":"All the news","template":"default","critical":false}}}}`
)

// tooLongText is too long to store.
var tooLongText = strings.Repeat("ü", maxName+1)

// manyKinds returns a registration of n kinds.
func manyKinds(n int) string {
	var kinds []string
	for i := range n {
		kinds = append(kinds, fmt.Sprintf(`"k%d":{"description":"d"}`, i))
	}
	return `{"source_name":"s","notifications":{` + strings.Join(kinds, ",") + `}}`
}

// Invalid registrations are refused with the exact message, and nothing is stored.
func TestRegisterRefuses(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	for _, tt := range []struct {
		name, path, body string
		code             int
		message          string
	}{
		{"empty", "/notifications", "", 400, notParsed},
		{"broken", "/notifications", `{"source_name":`, 400, notParsed},
		{"array", "/notifications", `[]`, 400, notParsed},
		{"text", "/notifications", `"x"`, 400, notParsed},
		{"two documents", "/notifications", `{"source_name":"s"}{}`, 400, notParsed},
		{"source_name is a number", "/notifications", `{"source_name":1}`, 400, notParsed},
		{"notifications is a list", "/notifications", `{"source_name":"s","notifications":[]}`, 400, notParsed},
		{"kind is a text", "/notifications", `{"source_name":"s","notifications":{"k":"d"}}`, 400, notParsed},
		{"critical is a text", "/notifications", `{"source_name":"s","notifications":{"k":{"description":"d","critical":"true"}}}`, 400, notParsed},
		{"description is a number", "/notifications", `{"source_name":"s","notifications":{"k":{"description":1}}}`, 400, notParsed},
		{"unknown key", "/notifications", `{"source_name":"s","bogus":1}`, 400, `"bogus" is not a valid property`},
		{"capitals count", "/notifications", `{"Source_name":"s"}`, 400, `"Source_name" is not a valid property`},
		{"unknown key in a kind", "/notifications", `{"source_name":"s","notifications":{"k":{"description":"d","template":"t"}}}`, 400, `"template" is not a valid property`},
		{"notifications is null", "/notifications", `{"source_name":"s","notifications":null}`, 400, `only include "notifications" key when adding a notification`},
		{"kind is null", "/notifications", `{"source_name":"s","notifications":{"k":null}}`, 400, "notification must not be null"},
		{"null", "/notifications", `null`, 422, `"source_name" is a required field`},
		{"nothing", "/notifications", `{}`, 422, `"source_name" is a required field`},
		{"no kind id", "/notifications", `{"source_name":"s","notifications":{"":{"description":"d"}}}`, 422, `notification "" is missing required field "ID"`},
		{"no description", "/notifications", `{"source_name":"s","notifications":{"k":{}}}`, 422, `notification "k" is missing required field "Description"`},
		{
			"all of it", "/notifications", `{"notifications":{"":{},"k":{"critical":true}}}`, 422,
			`"source_name" is a required field, notification "" is missing required field "ID", notification "" is missing required field "Description", notification "k" is missing required field "Description"`,
		},
		{"long name", "/notifications", `{"source_name":"` + tooLongText + `"}`, 422, `"source_name" has more than 255 characters`},
		{"long id", "/notifications", `{"source_name":"s","notifications":{"` + strings.Repeat("k", maxName+1) + `":{"description":"d"}}}`, 422, `"kind_id" has more than 255 characters`},
		{"bad id", "/notifications", `{"source_name":"s","notifications":{"a b/c":{"description":"d"}}}`, 422, `notification "a b/c" is improperly formatted: an id has only letters, digits, _, - and .`},
		{"too many", "/notifications", manyKinds(maxKinds + 1), 422, `Client "sender" would have 501 notifications; the limit is 500 per client`},
		{"long description", "/notifications", `{"source_name":"s","notifications":{"k":{"description":"` + tooLongText + `"}}}`, 422, `"description" has more than 255 characters`},
		{"10 MB", "/notifications", `{"source_name":"` + strings.Repeat("x", 10<<20) + `"}`, 413, "Request body has more than 1048576 bytes"},

		{"old: empty", "/registration", "", 400, notParsed},
		{"old: array", "/registration", `[]`, 400, notParsed},
		{"old: wrong type", "/registration", `{"source_description":"s","kinds":{}}`, 400, notParsed},
		{"old: wrong type in a kind", "/registration", `{"source_description":"s","kinds":[{"id":1}]}`, 400, notParsed},
		{"old: nothing", "/registration", `{}`, 422, `"source_description" is a required field`},
		{"old: no id", "/registration", `{"source_description":"s","kinds":[{"description":"d"}]}`, 422, `"kind.id" is a required field`},
		{"old: bad id", "/registration", `{"source_description":"s","kinds":[{"id":"a b","description":"d"}]}`, 422, `"kind.id" is improperly formatted`},
		{"old: no description", "/registration", `{"source_description":"s","kinds":[{"id":"a"}]}`, 422, `"kind.description" is a required field`},
		{
			"old: stops after the first bad kind", "/registration", `{"kinds":[{"id":"ok","description":"d"},{},{"id":"!"}]}`, 422,
			`"source_description" is a required field, "kind.id" is a required field, "kind.description" is a required field`,
		},
		{"old: long name", "/registration", `{"source_description":"` + tooLongText + `"}`, 422, `"source_name" has more than 255 characters`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.do(w.sender(), "PUT", tt.path, tt.body).want(t, "refused", tt.code, errorJSON(tt.message))
		})
	}
	for _, body := range []string{
		`{"source_name":"s","notifications":{"ok":{"description":"d"},"k":{"description":"d","critical":true}}}`,
		`{"source_description":"s","kinds":[{"id":"ok","description":"d"},{"id":"k","description":"d","critical":true}]}`,
	} {
		path := "/notifications"
		if strings.Contains(body, "kinds") {
			path = "/registration"
		}
		w.do(w.client("meek", ScopeManage), "PUT", path, body).want(t, "critical without its scope", 422, errorJSON(noCritical))
	}
	w.do(w.sender(), "GET", "/notifications", "").want(t, "nothing of it was kept", 200, listOfSender)
}

// A registration replaces the kinds of the client and keeps their templates. It does
// not change other clients or dew's own kinds.
func TestRegister(t *testing.T) {
	w := newHTTPWorld(t)
	sender := w.sender()
	w.do(sender, "GET", "/notifications", "").want(t, "at first", 200, "{}")
	if err := w.s.Register("dew", Kind{ID: "crash", Description: "An app crashed"}); err != nil {
		t.Fatal(err)
	}
	const platform = `"dew":{"name":"dew","template":"default","notifications":{"crash":{"description":"An app crashed","template":"default","critical":false}}}`
	list := func(what, rest string) {
		t.Helper()
		w.do(sender, "GET", "/notifications", "").want(t, what, 200, `{`+platform+`,`+rest+`}`)
	}
	put := func(token, path, body string) {
		t.Helper()
		code := 204
		if path == "/registration" {
			code = 200
		}
		w.do(token, "PUT", path, body).want(t, body, code, "")
	}
	kind := func(id string) string {
		return `"` + id + `":{"description":"D","template":"default","critical":false}`
	}
	put(sender, "/notifications", `{"source_name":"S"}`)
	list("only a name", `"sender":{"name":"S","template":"default","notifications":{}}`)
	for range 2 { // the second time changes nothing
		put(sender, "/notifications", `{"source_name":"S","notifications":{"a":{"description":"D"},"b-c":{"description":"D"}}}`)
		list("two kinds", `"sender":{"name":"S","template":"default","notifications":{`+kind("a")+`,`+kind("b-c")+`}}`)
	}
	id := w.do(sender, "POST", "/templates", `{"name":"n","html":"h"}`).id(t, "template-id")
	put(sender, "/clients/sender/notifications/a/template", `{"template":"`+id+`"}`)
	put(sender, "/clients/sender/template", `{"template":"`+id+`"}`)
	put(sender, "/notifications", `{"source_name":"S2","notifications":{"a":{"description":"D2","critical":true}}}`)
	const rest = `"notifications":{"a":{"description":"D2","template":"`
	list("b is dropped, a keeps its template", `"sender":{"name":"S2","template":"`+id+`",`+rest+id+`","critical":true}}}`)
	put(sender, "/notifications", `{"source_name":"S2","notifications":{}}`)
	list("an empty map drops nothing", `"sender":{"name":"S2","template":"`+id+`",`+rest+id+`","critical":true}}}`)
	put(sender, "/registration", `{"source_description":"S3","more":1}`)
	list("no list drops nothing", `"sender":{"name":"S3","template":"`+id+`",`+rest+id+`","critical":true}}}`)
	put(w.client("another", ScopeManage), "/notifications", `{"source_name":"A","notifications":{"crash":{"description":"D"}}}`)
	put(sender, "/registration", `{"source_description":"S3","kinds":[]}`)
	w.do(sender, "GET", "/notifications", "").want(t, "an empty list drops all", 200,
		`{"another":{"name":"A","template":"default","notifications":{`+kind("crash")+`}},`+platform+`,"sender":{"name":"S3","template":"`+id+`","notifications":{}}}`)
}

// No client can register as dew, not even one with its id.
func TestPlatformClient(t *testing.T) {
	w := newHTTPWorld(t)
	if err := w.s.Register("dew", Kind{ID: "crash", Description: "An app crashed"}); err != nil {
		t.Fatal(err)
	}
	fake := w.client(PlatformClient, allScopes...)
	w.do(fake, "PUT", "/notifications", `{"source_name":"s","notifications":{"k":{"description":"d"}}}`).want(t, "new form", 403, forbiddenJSON(`The notifications of client "dew" belong to dew itself`))
	w.do(fake, "PUT", "/registration", `{"source_description":"s","kinds":[]}`).want(t, "old form", 403, forbiddenJSON(`The notifications of client "dew" belong to dew itself`))
	w.do(fake, "PUT", "/clients/dew/notifications/crash", `{"description":"d","critical":true,"template":null}`).want(t, "critical", 403, forbiddenJSON(`The notifications of client "dew" belong to dew itself`))
	w.do(fake, "GET", "/notifications", "").want(t, "list", 200,
		`{"dew":{"name":"dew","template":"default","notifications":{"crash":{"description":"An app crashed","template":"default","critical":false}}}}`)
}

func TestUpdateKind(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	const path = "/clients/sender/notifications/news"
	for _, tt := range []struct {
		name, path, body string
		code             int
		message          string
	}{
		{"empty", path, "", 400, notParsed},
		{"broken", path, "{", 400, notParsed},
		{"unknown key", path, `{"description":"d","critical":true,"template":"","more":1}`, 400, notParsed},
		{"wrong type", path, `{"description":1,"critical":true,"template":""}`, 400, notParsed},
		{"nothing", path, `{}`, 422, "Missing required field 'description'"},
		{"no critical", path, `{"description":"d","template":""}`, 422, "Missing required field 'critical'"},
		{"no template", path, `{"description":"d","critical":true}`, 422, "Missing required field 'template'"},
		{"long description", path, `{"description":"` + tooLongText + `","critical":true,"template":""}`, 422, `"description" has more than 255 characters`},
		{"unknown template", path, `{"description":"d","critical":true,"template":"nope"}`, 422, `No template with id "nope"`},
		{"unknown kind", "/clients/sender/notifications/none", `{"description":"d","critical":true,"template":""}`, 404, unknownNews},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.do(w.sender(), "PUT", tt.path, tt.body).want(t, "refused", tt.code, errorJSON(tt.message))
		})
	}
	w.do(w.client("boss", ScopeManage, ScopeAdmin), "PUT", path, `{"description":"d","critical":true,"template":""}`).
		want(t, "critical without its scope", 422, errorJSON(noCritical))
	w.do(w.sender(), "GET", "/notifications", "").want(t, "nothing was changed", 200, listOfSender)

	id := w.do(w.sender(), "POST", "/templates", `{"name":"n","html":"h"}`).id(t, "template-id")
	w.do(w.sender(), "PUT", path, `{"description":"D","critical":true,"template":"`+id+`"}`).want(t, "all of it", 204, "")
	w.do(w.sender(), "PUT", path, `{"description":"","critical":null,"template":""}`).want(t, "empty values", 204, "")
	w.do(w.sender(), "GET", "/notifications", "").want(t, "list", 200, strings.Replace(listOfSender,
		`{"description":"All the news","template":"default"`, `{"description":"","template":"`+id+`"`, 1))
}

func TestAssign(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	sender := w.client("boss", ScopeManage, ScopeAdmin)
	for _, tt := range []struct {
		name, path, body string
		code             int
		message          string
	}{
		{"empty", "/clients/sender/template", "", 400, notParsed},
		{"broken", "/clients/sender/template", "{", 400, notParsed},
		{"number", "/clients/sender/template", `{"template":1}`, 400, notParsed},
		{"unknown template", "/clients/sender/template", `{"template":"nope"}`, 422, `No template with id "nope"`},
		{"unknown client", "/clients/zz/template", `{"template":"nope"}`, 404, `Client with ID "zz" could not be found`},
		{"kind: empty", "/clients/sender/notifications/news/template", "", 400, notParsed},
		{"kind: number", "/clients/sender/notifications/news/template", `{"template":1}`, 400, notParsed},
		{"kind: unknown template", "/clients/sender/notifications/news/template", `{"template":"nope"}`, 422, `No template with id "nope"`},
		{"kind: unknown client", "/clients/zz/notifications/news/template", `{"template":"nope"}`, 404, `Client with ID "zz" could not be found`},
		{"kind: unknown kind", "/clients/sender/notifications/none/template", `{"template":"nope"}`, 404, unknownNews},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.do(sender, "PUT", tt.path, tt.body).want(t, "refused", tt.code, errorJSON(tt.message))
		})
	}
	id := w.do(w.sender(), "POST", "/templates", `{"name":"n","html":"h"}`).id(t, "template-id")
	for _, path := range []string{"/clients/sender/template", "/clients/sender/notifications/news/template"} {
		for _, back := range []string{`{"template":null}`, `{"template":""}`, `{"template":"default"}`} {
			w.do(w.sender(), "PUT", path, `{"template":"`+id+`","more":true}`).want(t, "assign", 204, "")
			if g := w.do(w.sender(), "GET", "/templates/"+id+"/associations", ""); !strings.Contains(g.body, `"client":"sender"`) {
				t.Errorf("associations after %s = %s", path, g.body)
			}
			w.do(w.sender(), "PUT", path, back).want(t, back, 204, "")
			w.do(w.sender(), "GET", "/templates/"+id+"/associations", "").want(t, "after "+back, 200, `{"associations":[]}`)
		}
	}
}

// Parsing terminates for any body, and every accepted registration was checked.
func FuzzRegistration(f *testing.F) {
	for _, seed := range []string{
		`{"source_name":"s","notifications":{"k":{"description":"d","critical":true}}}`, `{"notifications":null}`, `null`, `{"source_name":1}`,
		`{"source_description":"s","kinds":[{"id":"k","description":"d"}]}`, `{"kinds":[null]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		fs, err := parseFields([]byte(body))
		if err != nil {
			return
		}
		if reg, err := readRegistration(fs); err == nil {
			checkStored(t, reg, false)
		}
		if reg, err := readOldRegistration(fs); err == nil {
			checkStored(t, reg, true)
		}
	})
}

func checkStored(t *testing.T, reg registration, old bool) {
	if reg.name == "" {
		t.Error("a registration without a name was let in")
	}
	for _, k := range reg.kinds {
		if k.ID == "" || k.Description == "" || len([]rune(k.ID)) > maxName || old && !kindIDPattern.MatchString(k.ID) {
			t.Errorf("a kind was let in: %+v", k)
		}
	}
}
