package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Every endpoint is described, and the description has no others.
func TestDescriptionIsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(w.s.endpoints())), slices.Sorted(maps.Keys(descriptions))); diff != "" {
		t.Errorf("descriptions has not the rows that endpoints has (-endpoints +descriptions):\n%s", diff)
	}
}

// docs/api.md has a row for every endpoint, and no others.
func TestDocumented(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("..", "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /uaa/[^`]*)` \\| \\S").FindAllStringSubmatch(string(b), -1) {
		rows = append(rows, row[1])
	}
	slices.Sort(rows)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(descriptions)), rows); diff != "" {
		t.Errorf("docs/api.md has other endpoints (-there +written):\n%s", diff)
	}
}

// The schema checker detects mismatches.
func TestSchemaChecker(t *testing.T) {
	t.Parallel()
	answered := func(code int, body string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		rec.WriteHeader(code)
		rec.Body.WriteString(body)
		return rec
	}
	ask := func(method, path string) *http.Request { return httptest.NewRequest(method, path, nil) }
	const member = `{"value":"x","type":"USER","origin":"uaa"}`
	for name, c := range map[string]struct {
		r    *http.Request
		sent string
		got  *httptest.ResponseRecorder
		good bool
	}{
		"good":               {ask("POST", "/uaa/Groups/x/members"), member, answered(201, member), true},
		"another status":     {ask("POST", "/uaa/Groups/x/members"), member, answered(200, member), false},
		"a key is missing":   {ask("POST", "/uaa/Groups/x/members"), member, answered(201, `{"value":"x"}`), false},
		"a bad request":      {ask("POST", "/uaa/Groups/x/members"), `{"value":1}`, answered(201, member), false},
		"a refusal":          {ask("POST", "/uaa/Groups/x/members"), `{"value":1}`, answered(400, `{"error":"a","error_description":"b"}`), true},
		"a refusal in words": {ask("POST", "/uaa/Groups/x/members"), member, answered(400, `no`), false},
		"no field":           {ask("POST", "/uaa/check_token"), "scopes=x", answered(200, `{}`), false},
		"an unknown query":   {ask("GET", "/uaa/Groups/x?y=z"), "", answered(200, `{"id":"x","displayName":"x","members":[],"zoneId":"uaa","schemas":[]}`), false},
	} {
		if err := checkExchange(c.r, []byte(c.sent), c.got); (err == nil) != c.good {
			t.Errorf("%s: %v, want it to be good: %t", name, err, c.good)
		}
	}
}

// A PATCH adds and removes members, and does not change members that it does not name.
func TestPatchGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, bob, eve := w.user("ann", "pw"), w.user("bob", "pw"), w.user("eve", "pw")
	token := w.admin()
	match := header("If-Match", "*")
	w.do("POST", "/uaa/Groups", `{"displayName":"shop.read","description":"may look","members":[{"value":"`+ann.GUID+`"},{"value":"`+bob.GUID+`"}]}`, as(token)).want(t, "create", 201, "")
	patch := func(body string) answer { return w.do("PATCH", "/uaa/Groups/shop.read", body, as(token), match) }
	members := func(a answer) (out []string) {
		for _, m := range a.body["members"].([]any) {
			out = append(out, m.(map[string]any)["value"].(string))
		}
		slices.Sort(out)
		return out
	}
	wantMembers := func(a answer, description string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := members(a); a.code != 200 || !slices.Equal(got, want) || a.text("description") != description {
			t.Errorf("group = %d %s, want members %v and %q", a.code, a.raw, want, description)
		}
	}
	wantMembers(patch(`{"members":[{"value":"`+ann.GUID+`","operation":"delete"},{"value":"`+eve.GUID+`","type":"USER"}]}`), "may look", bob.GUID, eve.GUID)
	wantMembers(patch(`{"description":"may read"}`), "may read", bob.GUID, eve.GUID)
	wantMembers(patch(`{"meta":{"attributes":["members","description"]},"members":[{"value":"`+ann.GUID+`"}]}`), "", ann.GUID)
	w.do("PATCH", "/uaa/Groups/shop.read", `{}`, as(token)).want(t, "no If-Match", 400, "scim")
	w.do("PATCH", "/uaa/Groups/none", `{}`, as(token), match).want(t, "no group", 404, "scim_resource_not_found")
	w.do("PATCH", "/uaa/Groups/shop.read", `{}`, as(w.signed(w.s.userClaims(eve, Client{ID: "cf"}, session{Scopes: []string{"openid"}, User: eve.GUID, Signature: eve.signature()}))), match).want(t, "somebody", 403, "insufficient_scope")
	for what, body := range map[string]string{
		"a new name": `{"displayName":"other"}`, "an id": `{"meta":{"attributes":["id"]}}`, "nobody": `{"members":[{"value":"nobody"}]}`,
	} {
		if a := patch(body); a.code < 400 || a.code >= 500 {
			t.Errorf("%s: %d %s, want a refusal", what, a.code, a.raw)
		}
	}
	wantMembers(patch(`{}`), "", ann.GUID)
}

// schemaChecker holds the compiled description.
type schemaChecker struct {
	mux      *http.ServeMux // only to find patterns
	mu       sync.Mutex     // guards compiler
	compiler *jsonschema.Compiler
}

var loadSchemaChecker = sync.OnceValues(func() (*schemaChecker, error) {
	v := &schemaChecker{mux: http.NewServeMux(), compiler: jsonschema.NewCompiler()}
	for pattern := range descriptions {
		v.mux.Handle(pattern, http.NotFoundHandler())
	}
	b, err := json.Marshal(Description())
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	return v, errors.Join(err, v.compiler.AddResource("mem:uaa", doc))
})

// checkExchange compares a request and its answer with the description.
func checkExchange(r *http.Request, sent []byte, got *httptest.ResponseRecorder) error {
	v, err := loadSchemaChecker()
	if err != nil {
		return err
	}
	_, pattern := v.mux.Handler(r)
	d, known := descriptions[pattern]
	if !known || !strings.HasPrefix(pattern, r.Method+" ") { // no endpoint serves it
		return nil
	}
	if r.Method == http.MethodHead {
		return nil
	}
	_, path, _ := strings.Cut(pattern, " ")
	place := []string{path, strings.ToLower(r.Method)}
	if got.Code >= http.StatusBadRequest {
		return v.check(got.Body.Bytes(), append(place, "responses", "default", "content", "application/json", "schema")...)
	}
	if got.Code != d.code() {
		return fmt.Errorf("the description does not list status %d", got.Code)
	}
	if d.response != nil {
		if err := v.check(got.Body.Bytes(), append(place, "responses", fmt.Sprint(d.code()), "content", "application/json", "schema")...); err != nil {
			return fmt.Errorf("the response: %w", err)
		}
	}
	for name := range r.URL.Query() {
		if !slices.Contains(d.query, name) {
			return fmt.Errorf("the description has no query parameter %q", name)
		}
	}
	return v.checkRequest(d, sent, place)
}

func (v *schemaChecker) checkRequest(d endpointDescription, sent []byte, place []string) error {
	place = append(place, "requestBody", "content")
	switch {
	case d.body != nil:
		return v.check(sent, append(place, "application/json", "schema")...)
	case d.form == nil:
		return nil
	}
	form, err := url.ParseQuery(string(sent))
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for name := range form {
		if !slices.Contains(d.form, name) {
			return fmt.Errorf("the description has no form field %q", name)
		}
		fields[name] = form.Get(name)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return v.check(b, append(place, "application/x-www-form-urlencoded", "schema")...)
}

// check compares JSON with the schema at a path of the description.
func (v *schemaChecker) check(b []byte, place ...string) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	at := "mem:uaa#"
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	for _, part := range place {
		at += "/" + escape.Replace(part)
	}
	v.mu.Lock()
	s, err := v.compiler.Compile(at)
	v.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Validate(value)
}
