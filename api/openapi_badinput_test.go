package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

// ways lists how a value can be made invalid. Each returns JSON to replace the value.
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

// valuePaths returns the paths of all values inside a value, starting with the value itself.
func valuePaths(v any, at []string) [][]string {
	all := [][]string{slices.Clone(at)}
	switch v := v.(type) {
	case rest.Object:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, valuePaths(v[k], append(slices.Clone(at), k))...)
		}
	case []any:
		for i := range v {
			all = append(all, valuePaths(v[i], append(slices.Clone(at), strconv.Itoa(i)))...)
		}
	}
	return all
}

// replaceValue returns the JSON of a value with the value at a path replaced by text. If text
// is empty, it omits that value.
func replaceValue(v any, at []string, text string) []byte {
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
			b.Write(replaceValue(inner, at[1:], text))
			return
		}
		whole, _ := json.Marshal(inner)
		b.Write(whole)
	}
	switch v := v.(type) {
	case rest.Object:
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

// valueAt returns the value at a path inside a value.
func valueAt(v any, path []string) any {
	for _, k := range path {
		switch inner := v.(type) {
		case rest.Object:
			v = inner[k]
		case []any:
			n, _ := strconv.Atoi(k)
			v = inner[n]
		}
	}
	return v
}

// badInputScale returns how thorough bad input is: the size of large values, and the
// interval between the ways to use.
func badInputScale() (size, stride int) {
	if longTests() {
		return 64 << 10, 1
	}
	return 16 << 10, 11
}

// spoiled returns the bad bodies that come from one place in a good body, by name of
// the defect.
func (u *badInputServer) spoiled(pattern string, spot []string, turn int) map[string][]byte {
	size, stride := badInputScale()
	all := map[string][]byte{}
	for i := range len(ways) + 2 {
		if (i+turn)%stride != 0 {
			continue
		}
		good := u.good(pattern)
		old := valueAt(good, spot)
		if i < len(ways) {
			all[ways[i].name] = replaceValue(good, spot, ways[i].make(old, size))
		} else if o, ok := old.(rest.Object); ok && i == len(ways) {
			o["surprise"] = 1
			all["with an unknown key"] = must(json.Marshal(good))(u.t)
		} else {
			all["left out"] = replaceValue(good, spot, "")
		}
	}
	return all
}

// Bodies that are generated from the API description, with an invalid value at every
// place, lead to no server error and no change.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	var built v3.Build
	h.want(200, "GET", "/v3/builds/"+h.guids["Build"], "", &built)
	h.guids["Built"], h.guids["/v3/service_plans/"] = built.Package.GUID, h.plan("small").GUID
	h.guids["Elsewhere"] = must(h.c.Registry.PutOrg(app.Org{Name: "further-away"}))(t).GUID
	h.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	u := newBadInputServer(t, h)
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
		for _, spot := range valuePaths(good, nil) {
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

// Invalid query parameters of every kind lead to no server error, on every endpoint
// that can be called repeatedly.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	u := newBadInputServer(t, newOrgServer(t))
	size, stride := badInputScale()
	turn := 0
	all := operations()
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		o := all[pattern]
		method, path := u.place(pattern)
		if method != http.MethodGet && len(o.Params) == 0 || method == http.MethodDelete {
			continue
		}
		names := append([]string{"surprise", "page[", "%", "created_ats[x]"}, o.Params...)
		if o.Pages {
			names = append(names, "order_by", "page", "per_page", rest.ParamCreated, rest.ParamUpdated+"[gt]")
		}
		for _, name := range names {
			n := url.QueryEscape(name)
			turn++
			for i, query := range []string{
				n, n + "=", n + "=a&" + n + "=b", n + "=,,", n + "=%zz", n + "=%00%ff%fe", n + "=-1", n + "=99999999999999999999",
				n + "=true", n + "=!(a),b in (", n + "=" + strings.Repeat("x,", size/2), strings.Repeat(n+"=1&", size/64), name + "=1",
				n + "=2026-01-01T00:00:00Z", n + "[]=1", n + "=%252C",
			} {
				endless := slices.Contains(o.Params, "follow")
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

// wantNoErrors checks that the log contains no server errors.
func (u *badInputServer) wantNoErrors() {
	u.t.Helper()
	if logged := u.logged.String(); strings.Contains(logged, "level=ERROR") {
		_, after, _ := strings.Cut(logged, "level=ERROR")
		u.t.Errorf("bad input is somebody else's fault, and the log has it as ours: %.3000s", after)
	}
}

// Any value at any place of a documented body leads to no server error.
func FuzzBodies(f *testing.F) {
	w := newTestServer(f)
	a := w.startedApp("shop")
	h := &orgServer{testServer: w, app: a.GUID, org: app.Org{GUID: "none"}, guids: map[string]string{"Space": w.space.GUID, "Organization": w.space.Org}}
	var patterns []string
	for pattern, o := range operations() {
		if noun := rights[pattern].Resource.Name; h.guids[noun] == "" {
			h.guids[noun] = a.GUID
		}
		if len(o.Bodies) > 0 && o.Bodies[0].Of != nil {
			patterns = append(patterns, pattern)
		}
	}
	slices.Sort(patterns)
	for _, prefix := range []string{"users", "domains", "jobs", "audit_events", "service_plans", "service_offerings", "service_brokers"} {
		h.guids["/v3/"+prefix+"/"] = "none"
	}
	h.guids["Droplet"] = "droplet-of-" + a.GUID
	u := newBadInputServer(f, h)
	for i, way := range ways {
		f.Add(uint16(i*13), uint16(i), way.make("x", 64))
	}
	f.Add(uint16(3), uint16(1), `{"data":{"guid":"x"}}`)
	f.Fuzz(func(t *testing.T, which, spot uint16, text string) {
		u.t = t
		pattern := patterns[int(which)%len(patterns)]
		method, path := u.place(pattern)
		good := u.good(pattern)
		all := valuePaths(good, nil)
		at := all[int(spot)%len(all)]
		u.try(pattern+", "+strings.Join(at, "."), method, path, replaceValue(good, at, text))
		u.wantNoErrors()
	})
}

// A user with bad labels is refused before an account is created.
func TestRefusedUserHasNoAccount(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	got := w.request("POST", "/v3/users", `{"username":"new","origin":"elsewhere","metadata":{"labels":{"a":"b c"}}}`)
	if got.Code != http.StatusUnprocessableEntity {
		t.Errorf("a user with bad labels = %d %s, want 422", got.Code, got.Body)
	}
	if _, err := w.c.Auth.Accounts().UserByName("new", "elsewhere"); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("the account of who was refused: %v, want none", err)
	}
}

// A resource that a user cannot see gets the same status and message as one that does
// not exist.
func TestHiddenLooksLikeNotFound(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	const nowhere = "00000000-0000-4000-8000-000000000000"
	for _, pattern := range slices.Sorted(maps.Keys(rights)) {
		method, path := h.methodAndPath(t, pattern)
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
			for _, body := range bodiesFor(method) {
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

// bodiesFor returns bodies that could be checked before the permissions. A method
// without a body gets only one of them.
func bodiesFor(method string) []string {
	all := []string{"", "{}", `{"metadata":{}}`}
	if !longTests() && (method == http.MethodGet || method == http.MethodDelete) {
		return all[:1]
	}
	return all
}
