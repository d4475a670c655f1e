package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
)

// ruin is a home where nothing moves but what is asked, and a place for bad input.
type ruin struct {
	*home
	t      testing.TB
	doc    object
	before []byte // the file of the store
	made   int    // names so far
}

func newRuin(t testing.TB, h *home) *ruin {
	t.Helper()
	for _, stop := range h.stops {
		stop()
	}
	h.local = h.s.Local() // what is bad is not as described
	u := &ruin{home: h, t: t, doc: plainCopy(t, document(publicURL, "1"))}
	u.before = u.store()
	h.guids["/v3/stacks/"] = droplet.StackGUID("host")
	for _, noun := range []string{"buildpacks", "organization_quotas", "security_groups", "isolation_segments"} {
		var made v3.GUID
		got := u.ask("POST", "/v3/"+noun, string(must(json.Marshal(u.good("POST /v3/"+noun)))(t)))
		if err := json.Unmarshal(got.Body.Bytes(), &made); err != nil || got.Code != http.StatusCreated {
			t.Fatalf("POST /v3/%s = %d %s", noun, got.Code, got.Body)
		}
		h.guids["/v3/"+noun+"/"] = made.GUID
	}
	u.before = u.store()
	return u
}

// file is what everything is kept in. Nobody writes to it meanwhile.
func (u *ruin) file() string { return filepath.Join(filepath.Dir(u.c.UploadDir), "dew.db") }

func (u *ruin) store() []byte {
	u.t.Helper()
	return must(os.ReadFile(u.file()))(u.t)
}

// written tells whether anything was written since before: every transaction
// leaves its number at the beginning of the file.
func (u *ruin) written() bool {
	u.t.Helper()
	f := must(os.Open(u.file()))(u.t)
	defer func() { _ = f.Close() }()
	head := make([]byte, min(8<<10, len(u.before)))
	must(io.ReadFull(f, head))(u.t)
	return !bytes.HasPrefix(u.before, head)
}

// try sends a request that may be bad in any way. It is never the server's fault,
// and what is refused leaves no trace.
func (u *ruin) try(what, method, path string, body []byte) int {
	u.t.Helper()
	r := httptest.NewRequest(method, "/", bytes.NewReader(body))
	r.URL = must(url.Parse(path))(u.t)
	got := httptest.NewRecorder()
	u.local.ServeHTTP(got, r)
	if got.Code >= http.StatusInternalServerError {
		u.t.Errorf("%s: %s %.300s %.300q = %d %s", what, method, path, body, got.Code, got.Body)
	}
	if !u.written() {
		return got.Code
	}
	after := u.store()
	if got.Code >= http.StatusBadRequest {
		if diff := cmp.Diff(u.dump(u.before), u.dump(after)); diff != "" {
			u.t.Errorf("%s: %s %.300s %.300q = %d %s, and the store has changed (-before +after):\n%.2000s",
				what, method, path, body, got.Code, got.Body, diff)
		}
	}
	u.before = after
	return got.Code
}

// dump is everything that a store has, by bucket and key.
func (u *ruin) dump(file []byte) map[string]string {
	u.t.Helper()
	path := filepath.Join(u.t.TempDir(), "copy.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		u.t.Fatal(err)
	}
	db := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}))(u.t)
	defer func() { _ = db.Close() }()
	out := map[string]string{}
	var walk func(prefix string, b *bbolt.Bucket) error
	walk = func(prefix string, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if inner := b.Bucket(k); inner != nil {
				return walk(prefix+"/"+string(k), inner)
			}
			out[prefix+"/"+string(k)] = string(v)
			return nil
		})
	}
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return walk(string(name), b) })
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// place is the method and the path that a pattern answers.
func (u *ruin) place(pattern string) (method, path string) {
	u.t.Helper()
	method, path = u.request(u.t, pattern)
	return method, strings.NewReplacer("/feature_flags/ssh", "/feature_flags/diego_docker", "/environment_variable_groups/ssh", "/environment_variable_groups/running").Replace(path)
}

// good is a body that an endpoint takes: one that is known to be good, or one that
// is made from the description. Its names are new.
func (u *ruin) good(pattern string) any {
	u.t.Helper()
	text, known := goodBodies[pattern]
	if !known {
		return u.sample(u.schemaAt(pattern), []string{""})
	}
	u.made++
	words := []string{"META", `{"labels":{"a":"b"},"annotations":{"a":null}}`, "NEW", "new-" + strconv.Itoa(u.made)}
	for _, noun := range slices.Sorted(maps.Keys(u.guids)) {
		words = append(words, "<"+noun+">", u.guids[noun])
	}
	var v any
	if err := json.Unmarshal([]byte(strings.NewReplacer(words...).Replace(text)), &v); err != nil {
		u.t.Fatalf("the good body of %s is bad: %v", pattern, err)
	}
	return v
}

// schemaAt is the schema of the body that an endpoint takes; nil: it takes no JSON.
func (u *ruin) schemaAt(pattern string) object {
	method, path, _ := strings.Cut(pattern, " ")
	op := u.doc["paths"].(object)[strings.TrimSuffix(path, "{$}")].(object)[strings.ToLower(method)].(object)
	body, ok := op["requestBody"].(object)
	if !ok {
		return nil
	}
	kind, ok := body["content"].(object)[kindJSON].(object)
	if !ok {
		return nil
	}
	return kind["schema"].(object)
}

// sample is a value of a schema, at a path of keys. What there is at home is named.
func (u *ruin) sample(schema object, at []string) any {
	if ref, ok := schema["$ref"].(string); ok {
		return u.sample(u.doc["components"].(object)["schemas"].(object)[ref[strings.LastIndex(ref, "/")+1:]].(object), at)
	}
	if choices, ok := schema["anyOf"].([]any); ok {
		return u.sample(choices[0].(object), at)
	}
	switch schema["type"] {
	case "object":
		out := object{}
		properties, _ := schema["properties"].(object)
		for name, s := range properties {
			out[name] = u.sample(s.(object), append(slices.Clone(at), name))
		}
		if more, ok := schema["additionalProperties"].(object); ok {
			out["key"] = u.sample(more, append(slices.Clone(at), "key"))
		}
		return out
	case "array":
		return []any{u.sample(schema["items"].(object), at)}
	case "integer", "number":
		return 64
	case "boolean":
		return true
	case "string":
		return u.word(at)
	}
	return object{"key": "value"}
}

// word is a text that may be good at a path of keys.
func (u *ruin) word(at []string) string {
	last := at[len(at)-1]
	if last == "guid" {
		for _, noun := range at {
			for known, guid := range u.guids {
				if strings.EqualFold(strings.ReplaceAll(known, " ", "_"), noun) || known == "/v3/"+noun+"s/" {
					return guid
				}
			}
		}
	}
	if good, ok := map[string]string{
		"stack": "host", "strategy": "rolling", "signal": "TERM", "url": "https://x.example.com", "protocol": "http1", "endpoint": "/",
		"username": "somebody", "origin": "uaa", "droplet_guid": u.guids["Droplet"], "method": "GET", "href": "https://x.example.com",
		"user": "vcap", "key": "value",
	}[last]; ok {
		return good
	}
	u.made++
	return "new-" + strconv.Itoa(u.made)
}

// ways are how a value is made bad. Each gives JSON that stands in its place.
var ways = []struct {
	name string
	make func(old any, size int) string
}{
	{"null", func(any, int) string { return `null` }},
	{"an object", func(any, int) string { return `{"surprise":{"a":[1]}}` }},
	{"an array", func(any, int) string { return `[[],{},null,"x",1.5,-1]` }},
	{"a word", func(any, int) string { return `"surprise"` }},
	{"a number", func(any, int) string { return `-9223372036854775809` }},
	{"a large number", func(any, int) string { return `9223372036854775807` }},
	{"a part of a number", func(any, int) string { return `1e-7` }},
	{"true", func(any, int) string { return `true` }},
	{"nothing", func(any, int) string { return `""` }},
	{"bad UTF-8", func(any, int) string { return "\"\xff\xfe\xed\xa0\x80\"" }},
	{"control characters", func(any, int) string { return `"\u0000\r\n\u202e/../%2e%2e"` }},
	{"huge", func(_ any, size int) string { return `"` + strings.Repeat("x", size) + `"` }},
	{"many", func(_ any, size int) string { return `[` + strings.Repeat(`"x",`, size/8) + `"x"]` }},
	{"deep", func(_ any, size int) string {
		d := min(size/4, 9000)
		return strings.Repeat(`[`, d) + strings.Repeat(`]`, d)
	}},
	{"twice", func(old any, _ int) string { b, _ := json.Marshal([]any{old, old}); return string(b) }},
}

// spots are the paths of all values inside a value, its own first.
func spots(v any, at []string) [][]string {
	all := [][]string{slices.Clone(at)}
	switch v := v.(type) {
	case object:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, spots(v[k], append(slices.Clone(at), k))...)
		}
	case []any:
		for i := range v {
			all = append(all, spots(v[i], append(slices.Clone(at), strconv.Itoa(i)))...)
		}
	}
	return all
}

// spoil is the JSON of a value with text in place of what is at a path. Without
// text it is left out there.
func spoil(v any, at []string, text string) []byte {
	if len(at) == 0 {
		return []byte(text)
	}
	var b bytes.Buffer
	item := func(key, label string, inner any) {
		if key == at[0] && len(at) == 1 && text == "" {
			return
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(label)
		if key == at[0] {
			b.Write(spoil(inner, at[1:], text))
			return
		}
		whole, _ := json.Marshal(inner)
		b.Write(whole)
	}
	switch v := v.(type) {
	case object:
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			item(k, strconv.Quote(k)+":", v[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i := range v {
			item(strconv.Itoa(i), "", v[i])
		}
		b.WriteByte(']')
	}
	return b.Bytes()
}

// inside is what is at a path inside a value.
func inside(v any, path []string) any {
	for _, k := range path {
		switch inner := v.(type) {
		case object:
			v = inner[k]
		case []any:
			n, _ := strconv.Atoi(k)
			v = inner[n]
		}
	}
	return v
}

// measures are how thorough bad input is: how large, and every how many ways.
func measures() (size, stride int) {
	if os.Getenv("DEW_PROOF") != "" {
		return 64 << 10, 1
	}
	return 16 << 10, 11
}

// spoiled are the bad bodies that come of a place in a good one, by what is bad.
func (u *ruin) spoiled(pattern string, spot []string, turn int) map[string][]byte {
	size, stride := measures()
	all := map[string][]byte{}
	for i := range len(ways) + 2 {
		if (i+turn)%stride != 0 {
			continue
		}
		good := u.good(pattern)
		old := inside(good, spot)
		if i < len(ways) {
			all[ways[i].name] = spoil(good, spot, ways[i].make(old, size))
		} else if o, ok := old.(object); ok && i == len(ways) {
			o["surprise"] = 1
			all["with an unknown key"] = must(json.Marshal(good))(u.t)
		} else {
			all["left out"] = spoil(good, spot, "")
		}
	}
	return all
}

// Bodies that are made from the description and then spoiled at every place.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var built v3.Build
	h.want(200, "GET", "/v3/builds/"+h.guids["Build"], "", &built)
	h.guids["Built"], h.guids["/v3/service_plans/"] = built.Package.GUID, h.plan("small").GUID
	h.guids["Elsewhere"] = must(h.c.Registry.PutOrg(app.Org{Name: "further-away"}))(t).GUID
	h.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	u := newRuin(t, h)
	turn, tried, refused := 0, 0, 0
	for _, pattern := range slices.Sorted(maps.Keys(operations())) {
		if u.schemaAt(pattern) == nil {
			continue
		}
		method, path := u.place(pattern)
		good := u.good(pattern)
		got := u.try(pattern, method, path, must(json.Marshal(good))(t))
		if why := neverGood[pattern]; got >= http.StatusBadRequest && why == "" {
			t.Errorf("%s = %d for a good body, %v: say in goodBodies what is good", pattern, got, good)
		}
		for _, spot := range spots(good, nil) {
			turn++
			bad := u.spoiled(pattern, spot, turn)
			for _, name := range slices.Sorted(maps.Keys(bad)) {
				tried++
				if u.try(pattern+", "+strings.Join(spot, ".")+", "+name, method, path, bad[name]) >= http.StatusBadRequest {
					refused++
				}
			}
		}
	}
	if tried < 500 || refused < tried/2 {
		t.Errorf("%d of %d bad bodies were refused: they are not bad", refused, tried)
	}
	u.wantNoErrors()
}

// Parameters of every kind of nonsense, for every endpoint that can be asked twice.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	u := newRuin(t, newHome(t))
	size, stride := measures()
	turn := 0
	all := operations()
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		o := all[pattern]
		method, path := u.place(pattern)
		if method != http.MethodGet && len(o.asks) == 0 || method == http.MethodDelete {
			continue
		}
		names := append([]string{"surprise", "page[", "%", "created_ats[x]"}, o.asks...)
		if o.pages {
			names = append(names, "order_by", "page", "per_page", paramCreated, paramUpdated+"[gt]")
		}
		for _, name := range names {
			n := url.QueryEscape(name)
			turn++
			for i, query := range []string{
				n, n + "=", n + "=a&" + n + "=b", n + "=,,", n + "=%zz", n + "=%00%ff%fe", n + "=-1", n + "=99999999999999999999",
				n + "=true", n + "=!(a),b in (", n + "=" + strings.Repeat("x,", size/2), strings.Repeat(n+"=1&", size/64), name + "=1",
				n + "=2026-01-01T00:00:00Z", n + "[]=1", n + "=%252C",
			} {
				endless := slices.Contains(o.asks, "follow")
				if (i+turn)%stride != 0 || endless && name == "follow" && query == "follow=true" {
					continue
				}
				if endless && name != "follow" {
					query += "&follow=false"
				}
				u.try(pattern, method, path+"?"+query, nil)
			}
		}
	}
	u.wantNoErrors()
}

// wantNoErrors wants nothing in the log that is the server's own fault.
func (u *ruin) wantNoErrors() {
	u.t.Helper()
	if logged := u.logged.String(); strings.Contains(logged, "level=ERROR") {
		_, after, _ := strings.Cut(logged, "level=ERROR")
		u.t.Errorf("bad input is somebody else's fault, and the log has it as ours: %.3000s", after)
	}
}

// Whatever stands at whatever place of a body that is described.
func FuzzBodies(f *testing.F) {
	w := newWorld(f)
	a := w.startedApp("shop")
	h := &home{world: w, app: a.GUID, org: app.Org{GUID: "none"}, guids: map[string]string{"Space": w.space.GUID, "Organization": w.space.Org}}
	var patterns []string
	for pattern, o := range operations() {
		if noun := rights[pattern].at.noun; h.guids[noun] == "" {
			h.guids[noun] = a.GUID
		}
		if len(o.takes) > 0 && o.takes[0].of != nil {
			patterns = append(patterns, pattern)
		}
	}
	slices.Sort(patterns)
	for _, prefix := range []string{"users", "domains", "jobs", "audit_events", "service_plans", "service_offerings", "service_brokers"} {
		h.guids["/v3/"+prefix+"/"] = "none"
	}
	h.guids["Droplet"] = "droplet-of-" + a.GUID
	u := newRuin(f, h)
	for i, way := range ways {
		f.Add(uint16(i*13), uint16(i), way.make("x", 64))
	}
	f.Add(uint16(3), uint16(1), `{"data":{"guid":"x"}}`)
	f.Fuzz(func(t *testing.T, which, spot uint16, text string) {
		u.t = t
		pattern := patterns[int(which)%len(patterns)]
		method, path := u.place(pattern)
		good := u.good(pattern)
		all := spots(good, nil)
		at := all[int(spot)%len(all)]
		u.try(pattern+", "+strings.Join(at, "."), method, path, spoil(good, at, text))
		u.wantNoErrors()
	})
}

// A user with bad labels is refused before there is an account.
func TestRefusedUserHasNoAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.ask("POST", "/v3/users", `{"username":"new","origin":"elsewhere","metadata":{"labels":{"a":"b c"}}}`)
	if got.Code != http.StatusUnprocessableEntity {
		t.Errorf("a user with bad labels = %d %s, want 422", got.Code, got.Body)
	}
	if _, err := w.c.Auth.Accounts().UserByName("new", "elsewhere"); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("the account of who was refused: %v, want none", err)
	}
}

// What a stranger may not see is answered as what there is not: with the same
// status and the same words.
func TestNotFoundTellsNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const nowhere = "00000000-0000-4000-8000-000000000000"
	for _, pattern := range slices.Sorted(maps.Keys(rights)) {
		method, path := h.request(t, pattern)
		guid := ""
		for _, known := range h.guids {
			if strings.Contains(path, "/"+known) {
				guid = known
			}
		}
		if !strings.Contains(pattern, "{guid}") || guid == "" || guid == "none" {
			continue
		}
		for _, who := range []string{"stranger", "nobody"} {
			for _, body := range []string{"", "{}", `{"metadata":{}}`} {
				there := h.as(h.tokens[who], method, path, body)
				gone := h.as(h.tokens[who], method, strings.ReplaceAll(path, guid, nowhere), body)
				text := strings.ReplaceAll(there.Body.String(), guid, nowhere)
				if there.Code != gone.Code || text != gone.Body.String() {
					t.Errorf("%s %s %q = %d %s, but for what there is not %d %s", who, pattern, body, there.Code, text, gone.Code, gone.Body)
				}
			}
		}
	}
}
