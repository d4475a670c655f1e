package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

// doV2 sends a request in version 2.
func (w *httpWorld) doV2(token, method, path, body string) got {
	w.t.Helper()
	return w.do(token, method, path, body, version2)
}

// campaignWorld has a sender with two campaign types.
type campaignWorld struct {
	*httpWorld
	token, sender, news, alarm string
}

func newCampaignWorld(t testing.TB, change ...func(c *Config)) *campaignWorld {
	w := &campaignWorld{httpWorld: newHTTPWorld(t, change...)}
	w.token = w.httpWorld.sender()
	w.sender = w.doV2(w.token, "POST", "/senders", `{"name":"S"}`).id(t, "id")
	w.news = w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaign_types", `{"name":"news","description":"All the news"}`).id(t, "id")
	w.alarm = w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaign_types", `{"name":"alarm","description":"Alarms","critical":true}`).id(t, "id")
	return w
}

func senderBody(id, name string) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"_links":{"campaign_types":{"href":"/senders/%s/campaign_types"},"campaigns":{"href":"/senders/%s/campaigns"},"self":{"href":"/senders/%s"}}}`, id, name, id, id, id)
}

func TestRoot2(t *testing.T) {
	w := newHTTPWorld(t)
	w.doV2("", "GET", "/", "").want(t, "root", 200, `{"_links":{"self":{"href":"/"},"senders":{"href":"/senders"},"templates":{"href":"/templates"}}}`)
}

func TestSenders(t *testing.T) {
	w := newHTTPWorld(t)
	token, other := w.sender(), w.client("other", ScopeWrite)
	for body, want := range map[string]got{
		"": {code: 400, body: "invalid json body"}, "[]": {code: 400, body: "invalid json body"}, `{"name":1}`: {code: 400, body: "invalid json body"},
		`{}`: {code: 422, body: "missing sender name"}, `null`: {code: 422, body: "missing sender name"}, `{"name":""}`: {code: 422, body: "missing sender name"},
		`{"name":"` + tooLongText + `"}`: {code: 422, body: `"name" has more than 255 characters`},
	} {
		w.doV2(token, "POST", "/senders", body).want(t, body, want.code, errorJSON(want.body))
	}
	g := w.doV2(token, "POST", "/senders", `{"name":"S","more":1}`)
	id := g.id(t, "id")
	g.want(t, "create", 201, senderBody(id, "S"))
	w.doV2(token, "POST", "/senders", `{"name":"S"}`).want(t, "again", 201, senderBody(id, "S"))
	if theirs := w.doV2(other, "POST", "/senders", `{"name":"S"}`).id(t, "id"); theirs == id {
		t.Error("two clients have one sender")
	}
	w.doV2(token, "GET", "/senders", "").want(t, "list", 200, `{"_links":{"self":{"href":"/senders"}},"senders":[`+senderBody(id, "S")+`]}`)
	w.doV2(token, "GET", "/senders/"+id, "").want(t, "get", 200, senderBody(id, "S"))
	second := w.doV2(token, "POST", "/senders", `{"name":"S2"}`).id(t, "id")
	w.doV2(token, "PUT", "/senders/"+id, `{"name":"S2"}`).want(t, "taken", 422, errorJSON(`Sender with name "S2" already exists`))
	w.doV2(token, "PUT", "/senders/"+id, `{`).want(t, "broken", 400, errorJSON("invalid json body"))
	w.doV2(token, "PUT", "/senders/"+id, `{"name":"S3"}`).want(t, "rename", 200, senderBody(id, "S3"))
	for _, id := range []string{"none", id} {
		missing := errorJSON(fmt.Sprintf("Sender with id %q could not be found", id))
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			w.doV2(other, method, "/senders/"+id, `{"name":"x"}`).want(t, method, 404, missing)
		}
		w.doV2(other, "POST", "/senders/"+id+"/campaign_types", `{"name":"n","description":"d"}`).want(t, "type", 404, missing)
		w.doV2(other, "GET", "/senders/"+id+"/campaign_types", "").want(t, "types", 404, missing)
	}
	w.doV2(token, "DELETE", "/senders/"+second, "").want(t, "delete", 204, "")
	w.doV2(token, "GET", "/senders/"+second, "").want(t, "gone", 404, errorJSON(fmt.Sprintf("Sender with id %q could not be found", second)))
}

func typeJSON(t campaignType) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"description":%q,"critical":%t,"template_id":%q,"_links":{"self":{"href":"/campaign_types/%s"}}}`,
		t.ID, t.Name, t.Description, t.Critical, t.Template, t.ID)
}

func TestCampaignTypes(t *testing.T) {
	w := newCampaignWorld(t)
	types := "/senders/" + w.sender + "/campaign_types"
	template := w.doV2(w.token, "POST", "/templates", `{"name":"T","text":"t"}`).id(t, "id")
	foreign := w.doV2(w.client("other", ScopeWrite), "POST", "/templates", `{"name":"T","text":"t"}`).id(t, "id")
	for _, tt := range []struct {
		method, path, body string
		code               int
		message            string
	}{
		{"POST", types, "", 400, "invalid json body"},
		{"POST", types, `{"critical":"x"}`, 400, "invalid json body"},
		{"POST", types, `{"description":"d"}`, 422, "missing campaign type name"},
		{"POST", types, `{"name":"n"}`, 422, "missing campaign type description"},
		{"POST", types, `{}`, 422, "missing campaign type name, missing campaign type description"},
		{"POST", types, `{"name":"n","description":"d","template_id":"none"}`, 404, `Template with id "none" could not be found`},
		{"POST", types, `{"name":"n","description":"d","template_id":"` + foreign + `"}`, 404, `Template with id "` + foreign + `" could not be found`},
		{"GET", "/campaign_types/none", "", 404, `Campaign type with id "none" could not be found`},
		{"PUT", "/campaign_types/none", "{}", 404, `Campaign type with id "none" could not be found`},
		{"DELETE", "/campaign_types/none", "", 404, `Campaign type with id "none" could not be found`},
		{"PUT", "/campaign_types/" + w.news, `{"name":"","description":""}`, 422, "name cannot be blank, description cannot be blank"},
		{"PUT", "/campaign_types/" + w.news, `{"name":"alarm"}`, 422, `Campaign type with name "alarm" already exists`},
		{"PUT", "/campaign_types/" + w.news, `{"template_id":"none"}`, 404, `Template with id "none" could not be found`},
		{"PUT", "/campaign_types/" + w.news, `[]`, 400, "invalid json body"},
	} {
		w.doV2(w.token, tt.method, tt.path, tt.body).want(t, tt.method+" "+tt.body, tt.code, errorJSON(tt.message))
	}
	news := campaignType{ID: w.news, Name: "news", Description: "All the news"}
	alarm := campaignType{ID: w.alarm, Name: "alarm", Description: "Alarms", Critical: true}
	w.doV2(w.token, "GET", "/campaign_types/"+w.alarm, "").want(t, "get", 200, typeJSON(alarm))
	w.doV2(w.token, "POST", types, `{"name":"news","description":"other"}`).want(t, "again", 201, typeJSON(news))
	news.Template, news.Description = template, "D"
	w.doV2(w.token, "PUT", "/campaign_types/"+w.news, `{"description":"D","template_id":"`+template+`"}`).want(t, "partly", 200, typeJSON(news))
	want := []string{typeJSON(news), typeJSON(alarm)}
	if w.alarm < w.news {
		slices.Reverse(want)
	}
	w.doV2(w.token, "GET", types, "").want(t, "list", 200,
		`{"_links":{"self":{"href":"`+types+`"},"sender":{"href":"/senders/`+w.sender+`"}},"campaign_types":[`+strings.Join(want, ",")+`]}`)
	w.doV2(w.client("other"), "GET", "/campaign_types/"+w.news, "").want(t, "foreign", 404, errorJSON(`Sender with id "`+w.sender+`" could not be found`))

	// The same client without the scope for critical notifications.
	testkit.Must(w.auth.Accounts().UpdateClient("sender", func(c *auth.Client) error {
		c.Authorities = []string{ScopeWrite}
		return nil
	}))(t)
	limited := w.grant("sender")
	w.doV2(limited, "POST", types, `{"name":"n","description":"d","critical":true}`).want(t, "create critical", 403, errorJSON("You do not have permission to create critical campaign types"))
	const noUpdate = "Forbidden: cannot update campaign type with critical flag set to true"
	w.doV2(limited, "PUT", "/campaign_types/"+w.news, `{"critical":true}`).want(t, "make critical", 403, errorJSON(noUpdate))
	w.doV2(limited, "PUT", "/campaign_types/"+w.alarm, `{"name":"x"}`).want(t, "change what is critical", 403, errorJSON(noUpdate))
	w.doV2(limited, "POST", "/senders/"+w.sender+"/campaigns", campaignOf(w.alarm, `{"users":["u"]}`)).want(t, "send", 403, errorJSON("Scope critical_notifications.write is required"))
	alarm.Critical = false
	w.doV2(limited, "PUT", "/campaign_types/"+w.alarm, `{"critical":false}`).want(t, "no more critical", 200, typeJSON(alarm))

	w.doV2(limited, "DELETE", "/campaign_types/"+w.news, "").want(t, "delete", 204, "")
	w.doV2(limited, "DELETE", "/senders/"+w.sender, "").want(t, "delete the sender", 204, "")
	if all := testkit.Must(w.s.buckets.types.All())(t); len(all) != 0 {
		t.Errorf("types = %+v, want none", all)
	}
}

func template2JSON(t Template) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"subject":%q,"html":%q,"text":%q,"metadata":%s,"_links":{"self":{"href":"/templates/%s"}}}`,
		t.ID, t.Name, t.Subject, t.HTML, t.Text, t.Metadata, t.ID)
}

func TestTemplates2(t *testing.T) {
	w := newHTTPWorld(t)
	token, other, admin := w.sender(), w.client("other", ScopeWrite), w.client("boss", ScopeWrite, ScopeAdmin)
	for body, want := range map[string]got{
		"": {code: 400, body: badTemplateBody}, `{"name":1}`: {code: 400, body: badTemplateBody}, `{"name":"n","text":"t","metadata":"m"}`: {code: 400, body: badTemplateBody},
		`{}`: {code: 422, body: `Template "name" field cannot be empty`}, `{"name":"n"}`: {code: 422, body: "missing either template text or html"},
		`{"name":"n","text":"{{"}`: {code: 422, body: "Text syntax is malformed please check your braces: line 1: unclosed action"},
	} {
		w.doV2(token, "POST", "/templates", body).want(t, body, want.code, errorJSON(want.body))
	}
	g := w.doV2(token, "POST", "/templates", `{"name":"n","text":"t"}`)
	id := g.id(t, "id")
	g.want(t, "create", 201, template2JSON(Template{ID: id, Name: "n", Subject: "{{.Subject}}", Text: "t", Metadata: json.RawMessage("{}")}))
	w.doV2(token, "PUT", "/templates/"+id, `{"html":"h","subject":"S","metadata":{"a":1}}`).want(t, "partly", 200, template2JSON(Template{ID: id, Name: "n", Subject: "S", Text: "t", HTML: "h", Metadata: json.RawMessage(`{"a":1}`)}))
	w.doV2(token, "PUT", "/templates/"+id, `{"subject":""}`).want(t, "empty subject", 200, template2JSON(Template{ID: id, Name: "n", Subject: "{{.Subject}}", Text: "t", HTML: "h", Metadata: json.RawMessage(`{"a":1}`)}))
	w.doV2(token, "PUT", "/templates/"+id, `x`).want(t, "broken", 400, errorJSON(badTemplateBody))
	w.doV2(token, "GET", "/templates/"+id, "").want(t, "get", 200, template2JSON(Template{ID: id, Name: "n", Subject: "{{.Subject}}", Text: "t", HTML: "h", Metadata: json.RawMessage(`{"a":1}`)}))
	missing := errorJSON(fmt.Sprintf("Template with id %q could not be found", id))
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		w.doV2(other, method, "/templates/"+id, "{}").want(t, "foreign "+method, 404, missing)
	}
	w.doV2(other, "GET", "/templates", "").want(t, "foreign list", 200, `{"_links":{"self":{"href":"/templates"}},"templates":[]}`)

	first := template2JSON(Template{ID: "default", Name: "The Default Template", Subject: "{{.Subject}}", Text: "{{.Text}}", HTML: "{{.HTML}}", Metadata: json.RawMessage("{}")})
	w.doV2(other, "GET", "/templates/default", "").want(t, "default", 200, first)
	w.doV2(other, "PUT", "/templates/default", `{"text":"x"}`).want(t, "not everybody's", 403, forbiddenJSON("The token needs the scope notifications.admin"))
	w.doV2(other, "DELETE", "/templates/default", "").want(t, "not everybody's", 403, forbiddenJSON("The token needs the scope notifications.admin"))
	for _, text := range []string{"x", "y"} {
		w.doV2(admin, "PUT", "/templates/default", `{"text":"`+text+`"}`).want(t, "put", 200, template2JSON(Template{ID: "default", Name: "The Default Template", Subject: "{{.Subject}}", Text: text, HTML: "{{.HTML}}", Metadata: json.RawMessage("{}")}))
	}
	w.doV2(admin, "DELETE", "/templates/default", "").want(t, "delete", 204, "")
	w.doV2(other, "GET", "/templates/default", "").want(t, "as at first", 200, first)
	w.doV2(token, "DELETE", "/templates/"+id, "").want(t, "delete", 204, "")
	w.doV2(token, "GET", "/templates/"+id, "").want(t, "gone", 404, missing)
}

// campaignOf returns the body of a campaign.
func campaignOf(kind, to string) string {
	return `{"send_to":` + to + `,"campaign_type_id":"` + kind + `","text":"hello","subject":"Sub"}`
}

func TestCampaignRefuses(t *testing.T) {
	w := newCampaignWorld(t)
	path := "/senders/" + w.sender + "/campaigns"
	second := w.doV2(w.token, "POST", "/senders", `{"name":"S2"}`).id(t, "id")
	const users = `{"users":["u"]}`
	for _, tt := range []struct {
		path, body string
		code       int
		message    string
	}{
		{path, "", 400, "invalid json body"},
		{path, `{"send_to":[]}`, 400, "invalid json body"},
		{path, `{"send_to":{"users":"u"}}`, 400, "invalid json body"},
		{path, `{"send_to":{"bananas":["x"],"users":["u"]}}`, 422, `"bananas" is not a valid audience`},
		{path, `{"send_to":{"emails":["x"]}}`, 422, `"x" is not a valid email address`},
		{path, `{"send_to":{"emails":["a@b","c@d\r\nBcc: e@f"]}}`, 422, "\"c@d\\r\\nBcc: e@f\" is not a valid email address"},
		{path, `{"send_to":{"users":[""]}}`, 422, `"send_to" has an empty guid`},
		{path, `{"send_to":{"users":["` + tooLongText + `"]}}`, 422, `"send_to" has more than 255 characters`},
		{path, `{"send_to":` + users + `}`, 422, "missing campaign_type_id"},
		{path, `{"send_to":` + users + `,"campaign_type_id":"x"}`, 422, "missing either campaign text or html"},
		{path, `{"send_to":` + users + `,"campaign_type_id":"x","text":"t"}`, 422, "missing subject"},
		{path, `{"send_to":` + users + `,"campaign_type_id":"x","text":"t","subject":"s","reply_to":"x"}`, 422, `"x" is not a valid email address`},
		{"/senders/none/campaigns", campaignOf("x", users), 404, `Sender with id "none" could not be found`},
		{path, campaignOf("none", users), 404, `Campaign type with id "none" could not be found`},
		{"/senders/" + second + "/campaigns", campaignOf(w.news, users), 404, `Campaign type with id "` + w.news + `" could not be found`},
		{path, `{"send_to":` + users + `,"campaign_type_id":"` + w.news + `","text":"t","subject":"s","template_id":"none"}`, 404, `Template with id "none" could not be found`},
		{path, `{"send_to":` + users + `,"campaign_type_id":"` + w.news + `","html":"<head></head>","subject":"s"}`, 422, "missing either campaign text or html"},
	} {
		w.doV2(w.token, "POST", tt.path, tt.body).want(t, tt.body, tt.code, errorJSON(tt.message))
	}
	if n := testkit.Must(w.queue.Waiting())(t); n != 0 {
		t.Errorf("%d messages were queued", n)
	}
}

// A campaign reaches each recipient in its audiences once.
func TestCampaign(t *testing.T) {
	w := newCampaignWorld(t)
	ann, _ := w.user("ann")
	bob, _ := w.user("bob")
	testkit.Must(w.roles.Put(auth.Role{User: ann, Type: auth.SpaceDeveloper, Space: w.space.GUID}))(t)
	testkit.Must(w.roles.Put(auth.Role{User: ann, Type: auth.OrgUser, Org: w.space.Org}))(t)
	testkit.Must(w.roles.Put(auth.Role{User: bob, Type: auth.OrgUser, Org: w.space.Org}))(t)
	to := fmt.Sprintf(`{"emails":["x@example.com","x@example.com"],"orgs":[%q,"none"],"spaces":[%q,"none"],"users":["ghost"]}`, w.space.Org, w.space.GUID)
	g := w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaigns", campaignOf(w.news, to))
	id := g.id(t, "id")
	want := fmt.Sprintf(`{"id":%q,"send_to":%s,"campaign_type_id":%q,"text":"hello","html":"","subject":"Sub","template_id":"default","reply_to":"",`+
		`"_links":{"campaign_type":{"href":"/campaign_types/%s"},"self":{"href":"/campaigns/%s"},"status":{"href":"/campaigns/%s/status"},"template":{"href":"/templates/default"}}}`,
		id, to, w.news, w.news, id, id)
	g.want(t, "create", 202, want)
	w.doV2(w.token, "GET", "/campaigns/"+id, "").want(t, "get", 200, want)

	var who []string
	all := testkit.Must(messages(w.db).All())(t)
	for _, m := range all {
		who = append(who, m.Recipient())
	}
	slices.Sort(who)
	expected := slices.Sorted(slices.Values([]string{ann, bob, "ghost", "x@example.com"}))
	if !slices.Equal(who, expected) {
		t.Errorf("recipients = %v, want %v", who, expected)
	}
	if mails, problems := w.mails(ann); len(mails) != 1 || len(problems) != 0 || mails[0].Text != "hello" || mails[0].Subject != "Sub" {
		t.Errorf("mails = %+v, %v", mails, problems)
	}
	s := w.status(id)
	if s.Status != "sending" || s.Total != 4 || s.Queued != 4 || s.Completed != nil {
		t.Errorf("status = %+v", s)
	}
	for i, status := range []delivery.Status{delivery.Delivered, delivery.Retry, delivery.Failed, delivery.Undeliverable} {
		settle(t, w.queue, time.Now(), delivery.Outcome{Message: all[i].ID, Status: status, Client: "sender", Problem: errors.New("no")})
	}
	if s = w.status(id); s.Status != "sending" || s.Sent != 1 || s.Retry != 1 || s.Failed != 1 || s.Undeliverable != 1 {
		t.Errorf("status = %+v", s)
	}
	settle(t, w.queue, time.Now(), delivery.Outcome{Message: all[1].ID, Status: delivery.Delivered, Client: "sender"})
	if s = w.status(id); s.Status != "completed" || s.Sent != 2 || s.Completed == nil || s.Completed.Before(s.Started) {
		t.Errorf("status = %+v", s)
	}
	for _, path := range []string{"/campaigns/" + id, "/campaigns/" + id + "/status"} {
		w.doV2(w.client("other", ScopeWrite), "GET", path, "").want(t, "foreign", 404, errorJSON(fmt.Sprintf("Campaign with id %q could not be found", id)))
	}
	w.doV2(w.token, "GET", "/campaigns/none", "").want(t, "unknown", 404, errorJSON(`Campaign with id "none" could not be found`))
}

func (w *campaignWorld) status(id string) (s statusResponse) {
	w.t.Helper()
	g := w.doV2(w.token, "GET", "/campaigns/"+id+"/status", "")
	if err := json.Unmarshal([]byte(g.body), &s); err != nil || g.code != 200 {
		w.t.Fatalf("%d %s", g.code, g.body)
	}
	return s
}

// A campaign without recipients is completed at once, and uses the template of its
// type.
func TestCampaignToNobody(t *testing.T) {
	w := newCampaignWorld(t)
	template := w.doV2(w.token, "POST", "/templates", `{"name":"T","text":"[{{.Text}}]"}`).id(t, "id")
	w.doV2(w.token, "PUT", "/campaign_types/"+w.news, `{"template_id":"`+template+`"}`)
	g := w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaigns", `{"campaign_type_id":"`+w.news+`","text":"t","subject":"s"}`)
	if g.code != 202 || !strings.Contains(g.body, `"send_to":null`) || !strings.Contains(g.body, `"template_id":"`+template+`"`) {
		t.Errorf("%d %s", g.code, g.body)
	}
	if s := w.status(g.id(t, "id")); s.Status != "completed" || s.Total != 0 || s.Completed == nil {
		t.Errorf("status = %+v", s)
	}
	w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaigns", campaignOf(w.news, `{"emails":["x@example.com"]}`))
	if mails, _ := w.mails("x@example.com"); len(mails) != 1 || mails[0].Text != "[hello]" {
		t.Errorf("mails = %+v", mails)
	}
	w.doV2(w.token, "DELETE", "/templates/"+template, "").want(t, "delete", 204, "")
	if mails, _ := w.mails("x@example.com"); len(mails) != 1 || mails[0].Text != "hello" {
		t.Errorf("without the template: mails = %+v", mails)
	}
}

// Users can unsubscribe themselves from a campaign type, and clients can unsubscribe
// others. A critical type cannot be unsubscribed from.
func TestUnsubscribers(t *testing.T) {
	w := newCampaignWorld(t)
	ann, own := w.user("ann")
	bob, _ := w.user("bob")
	prefs := w.client("prefs", ScopePrefsAdmin)
	path := func(kind, user string) string { return "/campaign_types/" + kind + "/unsubscribers/" + user }
	for _, method := range []string{"PUT", "DELETE"} {
		w.doV2(own, method, path(w.news, bob), "").want(t, "for somebody else", 403, forbiddenJSON("Users can change only their own subscriptions"))
		w.doV2(w.client("only", ScopePrefsWrite), method, path(w.news, ann), "").want(t, "a client without the scope", 403, forbiddenJSON("The token needs the scope notification_preferences.admin"))
		w.doV2(prefs, method, path("none", ann), "").want(t, "unknown type", 404, errorJSON(`Campaign type with id "none" could not be found`))
		w.doV2(prefs, method, path(w.news, "ghost"), "").want(t, "unknown user", 404, errorJSON(`User "ghost" not found`))
	}
	w.doV2(own, "PUT", path(w.alarm, ann), "").want(t, "critical", 403, errorJSON(fmt.Sprintf("Campaign type %q cannot be unsubscribed from", w.alarm)))
	for _, kind := range []string{w.news, w.alarm} {
		w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaigns", campaignOf(kind, `{"users":["`+ann+`","`+bob+`"]}`))
	}
	gets := func(what, user string, want int) {
		t.Helper()
		mails, problems := w.mails(user)
		if len(mails) != want || len(mails)+len(problems) != 2 {
			t.Errorf("%s: %d mails, %v; want %d", what, len(mails), problems, want)
		}
		for _, p := range problems {
			if !errors.Is(p, delivery.ErrUnsubscribed) {
				t.Errorf("%s: %v", what, p)
			}
		}
	}
	gets("at first", ann, 2)
	for range 2 { // the second time changes nothing
		w.doV2(own, "PUT", path(w.news, ann), "").want(t, "leave", 204, "")
	}
	gets("left", ann, 1)
	gets("somebody else", bob, 2)
	w.doV2(prefs, "PUT", path(w.news, bob), "").want(t, "by a client", 204, "")
	gets("left by a client", bob, 1)
	for range 2 {
		w.doV2(own, "DELETE", path(w.news, ann), "").want(t, "come back", 204, "")
	}
	gets("back", ann, 2)
	w.do(own, "PATCH", "/user_preferences", `{"global_unsubscribe":true}`).want(t, "nothing at all", 204, "")
	gets("silent", ann, 1)
}

// Campaigns are dropped with their messages.
func TestForgetCampaigns(t *testing.T) {
	w := newCampaignWorld(t)
	sent := w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaigns", campaignOf(w.news, `{"users":["u"]}`)).id(t, "id")
	empty := w.doV2(w.token, "POST", "/senders/"+w.sender+"/campaigns", campaignOf(w.news, `{}`)).id(t, "id")
	exists := func(id string) bool { return w.doV2(w.token, "GET", "/campaigns/"+id, "").code == 200 }
	if err := w.s.deleteCampaigns(time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !exists(sent) || !exists(empty) {
		t.Error("a campaign was forgotten too early")
	}
	if err := w.s.deleteCampaigns(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !exists(sent) || exists(empty) {
		t.Errorf("with messages: %t, without: %t; want only the first", exists(sent), exists(empty))
	}
	q := w.s.c.Queue
	ids, _, err := q.Next(time.Now(), 1, nil)
	if err != nil || len(ids) != 1 {
		t.Fatalf("due: %v, %v", ids, err)
	}
	if err := q.Settle([]delivery.Outcome{{Message: ids[0], Status: delivery.Delivered}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Sweep(time.Now().Add(time.Hour)), w.s.deleteCampaigns(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	count, err := q.Campaign(sent)
	if err != nil || exists(sent) || count.Total != 0 {
		t.Errorf("after its messages: %t, %+v, %v; want nothing", exists(sent), count, err)
	}
}
